"""What integrations of other trainers import of this package: one face, so that its modules can move.

An integration also takes settings (`dph.config`), the plain data (`dph.types`), errors, and what the packages for
plug-ins export (`dph.objective`, `dph.verifiers`, `dph.rewards`). A contract of import-linter holds it to that.
"""

from dph.build import (
    load_plugin as load_plugin,
    load_problems as load_problems,
    make_task as make_task,
    make_sampler as make_sampler,
    make_verifiers as make_verifiers,
)
from dph.evaluation.certification import CertificationSet as CertificationSet
from dph.measure.metrics import answer_of as answer_of
from dph.measure.passk import coverage_shares as coverage_shares
from dph.models.batch import by_prompt as by_prompt, packed_microbatches as packed_microbatches
from dph.models.card import save_with_card as save_with_card
from dph.models.chat import (
    Rendering as Rendering,
    check_variables as check_variables,
    date_sentence as date_sentence,
    dated_template as dated_template,
    encode_problem as encode_problem,
    refuse_own_variables as refuse_own_variables,
    template_of as template_of,
)
from dph.models.loading import (
    load_tokenizer as load_tokenizer,
    model_folder as model_folder,
    read_config as read_config,
)
from dph.models.logprobs import Entropy as Entropy, token_logprobs as token_logprobs
from dph.models.model_files import refuse_other_kinds as refuse_other_kinds
from dph.models.packing import (
    Packed as Packed,
    Tokens as Tokens,
    group_by_prompt as group_by_prompt,
    pack as pack,
    packed_tokens as packed_tokens,
)
from dph.models.policy import Policy as Policy
from dph.models.sharing import Sharing as Sharing, shared_attention as shared_attention
from dph.models.traits import has_noise as has_noise
from dph.process.distributed import World as World
from dph.process.places import own as own
from dph.process.progress import say as say, show as show, show_messages as show_messages, warn as warn
from dph.rehearsal.bank import Bank as Bank, Sighting as Sighting, even_weights as even_weights
from dph.rehearsal.bank_files import BankFiles as BankFiles
from dph.rehearsal.check import (
    check_deviation as check_deviation,
    check_facts as check_facts,
    check_fit as check_fit,
    check_start as check_start,
    rendering_facts as rendering_facts,
)
from dph.rehearsal.modes import BANK_KEYS as BANK_KEYS, BankKey as BankKey, Forms as Forms, Solution as Solution
from dph.rehearsal.presampled import Presampled as Presampled
from dph.rehearsal.store import Rehearsal as Rehearsal, RehearsalSet as RehearsalSet
from dph.runs.coverage import Ledger as Ledger
from dph.runs.files import (
    check_replaced as check_replaced,
    check_unchanged as check_unchanged,
    write_atomically as write_atomically,
    written_atomically as written_atomically,
)
from dph.sampling.generate import HFSampler as HFSampler
from dph.sampling.rollouts import usable_problems as usable_problems
from dph.sampling.seeding import derive_key as derive_key
from dph.tasks import style_of as style_of
from dph.training.callbacks.certifier import Certifier as Certifier
from dph.training.callbacks.monitor import monitored_sets as monitored_sets
from dph.training.advantages import AdvantageEstimator as AdvantageEstimator
from dph.training.rows import Row as Row, collate as collate, rehearsal_row as rehearsal_row
from dph.training.update import count_rows as count_rows
