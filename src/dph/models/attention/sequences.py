"""Sequences of packed rows as padded batches: read from flat tensors [N, …] and written back."""

from torch import Tensor

from dph.models.packing import Bucket


def take(x: Tensor, bucket: Bucket) -> Tensor:
    """Gather the bucket's sequences, [N, …] → [B, L, …]; padding repeats a sequence's last token."""
    count, width = bucket.shape
    if bucket.index is None:
        return x[bucket.start : bucket.start + count * width].unflatten(0, bucket.shape)
    return x.index_select(0, bucket.index).unflatten(0, bucket.shape)


def take_zeroed(x: Tensor, bucket: Bucket) -> Tensor:
    """As `_take`, with zeros in the padding."""
    if bucket.index is None:
        return take(x, bucket)
    count, width = bucket.shape
    out = x.new_zeros(count * width, *x.shape[1:])
    assert bucket.present is not None and bucket.places is not None
    return out.index_copy_(0, bucket.present, x.index_select(0, bucket.places)).unflatten(0, bucket.shape)


def put(x: Tensor, bucket: Bucket, values: Tensor) -> None:
    """Write the bucket's sequences [B, L, …] into flat [N, …], leaving padding out."""
    count, width = bucket.shape
    if bucket.index is None:
        x[bucket.start : bucket.start + count * width].unflatten(0, bucket.shape).copy_(values)
        return
    assert bucket.present is not None and bucket.places is not None
    x.index_copy_(0, bucket.places, values.flatten(0, 1).index_select(0, bucket.present))
