"""The shapes and types of tensors, checked where a training loop hands them to the library.

torch broadcasts: advantages [T] where [B] is meant, or a mask that lacks a position, often give a number and no error.
So `Objective` and `Policy.logprobs` compare every tensor that they take with the shape that they document.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # a check reads attributes of tensors and needs nothing of torch
    from torch import Tensor

Kind = Literal["float", "int", "bool", "mask"]
"""The types that a tensor may have: floating point numbers, whole numbers, truth values, or any of these."""


def check_tensor(name: str, tensor: "Tensor", kind: Kind, sizes: Mapping[str, int], *shapes: str) -> None:
    """Compare a tensor with the shapes and the type that it may have.

    Args:
        name: of the tensor, for the message.
        tensor: only the attributes `shape` and `dtype` are read, so that a tensor on a GPU is not waited for.
        kind: the types that the tensor may have.
        sizes: the length of each dimension by the letter that stands for the dimension.
        shapes: the shapes that the tensor may have, each as the letters of its dimensions, such as "BT".

    Raises:
        ValueError: the tensor has none of the shapes, or another type. The message names the shapes that were
            expected, with their sizes, and the shape and the type that were found.

    >>> import torch
    >>> check_tensor("advantages", torch.zeros(2), "float", {"B": 2, "T": 3}, "B", "BT")
    >>> check_tensor("advantages", torch.zeros(3), "float", {"B": 2, "T": 3}, "B", "BT")
    Traceback (most recent call last):
    ValueError: advantages must be a float tensor [B] = [2] or [B, T] = [2, 3], but is float32 [3]
    """
    found = tuple(tensor.shape)
    if _has_kind(tensor, kind) and any(found == tuple(sizes[letter] for letter in shape) for shape in shapes):
        return
    wanted = " or ".join(f"[{', '.join(shape)}] = {[sizes[letter] for letter in shape]}" for shape in shapes)
    what = "a tensor" if kind == "mask" else f"{'an' if kind == 'int' else 'a'} {kind} tensor"
    found_type = str(tensor.dtype).removeprefix("torch.")
    raise ValueError(f"{name} must be {what} {wanted}, but is {found_type} {list(found)}")


def _has_kind(tensor: "Tensor", kind: Kind) -> bool:
    if kind == "mask":
        return True
    if kind == "float":
        return tensor.dtype.is_floating_point
    is_bool = str(tensor.dtype) == "torch.bool"
    return is_bool if kind == "bool" else not (is_bool or tensor.dtype.is_floating_point or tensor.dtype.is_complex)
