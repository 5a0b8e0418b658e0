"""Settings: a dataclass for each stage, how presets, files and flags fill it, and how it is written down.

`settings` says what a settings object is: checked when it is made, and believed afterwards. `components` holds the
parts that several stages share, `learning` those of training, `train` and `stages` the settings of each command. `load`
joins presets, files and flags, `trees` makes objects of nested dictionaries and the other way round, and `checks` looks
at what settings name outside.
"""

from dph.config.commands import (
    DemoConfig as DemoConfig,
    DoctorConfig as DoctorConfig,
    InitConfig as InitConfig,
    InterpolateConfig as InterpolateConfig,
    PasskConfig as PasskConfig,
    ReportConfig as ReportConfig,
    TrialConfig as TrialConfig,
)
from dph.config.components import (
    EvaluatedModelConfig as EvaluatedModelConfig,
    JudgeConfig as JudgeConfig,
    ModelConfig as ModelConfig,
    NewModelConfig as NewModelConfig,
    Reading as Reading,
    ReferenceModelConfig as ReferenceModelConfig,
    RewardConfig as RewardConfig,
    RolloutConfig as RolloutConfig,
    SamplerConfig as SamplerConfig,
    SamplingConfig as SamplingConfig,
    SupervisedModelConfig as SupervisedModelConfig,
    TaskConfig as TaskConfig,
    TaskSource as TaskSource,
    TaskSplit as TaskSplit,
    TrainingSamplerConfig as TrainingSamplerConfig,
    VerifierConfig as VerifierConfig,
)
from dph.config.learning import (
    AdamWConfig as AdamWConfig,
    AdvantageConfig as AdvantageConfig,
    AsideConfig as AsideConfig,
    BankConfig as BankConfig,
    CertificateConfig as CertificateConfig,
    CertifyConfig as CertifyConfig,
    CertifySetConfig as CertifySetConfig,
    DynamicSamplingConfig as DynamicSamplingConfig,
    LossConfig as LossConfig,
    MonitorConfig as MonitorConfig,
    MonitorSet as MonitorSet,
    OptimConfig as OptimConfig,
    OverlongConfig as OverlongConfig,
    RehearsalConfig as RehearsalConfig,
    RehearsalTerm as RehearsalTerm,
)
from dph.config.load import (
    is_settings_file as is_settings_file,
    load_settings as load_settings,
    merge_settings as merge_settings,
    preset_label as preset_label,
    preset_names as preset_names,
    read_settings as read_settings,
)
from dph.config.permitted import (
    Named as Named,
    Permitted as Permitted,
    code_of as code_of,
    named_by as named_by,
    only as only,
    require as require,
    words_of as words_of,
)
from dph.config.settings import Settings as Settings
from dph.config.stages import (
    STAGES as STAGES,
    AuditConfig as AuditConfig,
    CertifyStageConfig as CertifyStageConfig,
    CheckConfig as CheckConfig,
    ClusterConfig as ClusterConfig,
    EvalConfig as EvalConfig,
    PartitionRule as PartitionRule,
    PresampleConfig as PresampleConfig,
    SftConfig as SftConfig,
    VerifyConfig as VerifyConfig,
    VerlConfig as VerlConfig,
)
from dph.config.train import TrainConfig as TrainConfig
from dph.config.trees import (
    absolute as absolute,
    comparable as comparable,
    differences as differences,
    every_setting as every_setting,
    field_docs as field_docs,
    flatten as flatten,
    from_dict as from_dict,
    laid_over as laid_over,
    narrowed as narrowed,
    nested as nested,
    read_tree as read_tree,
    to_dict as to_dict,
    to_toml as to_toml,
    unusual as unusual,
)
