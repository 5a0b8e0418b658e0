"""Settings: a dataclass for each stage, how presets, files and flags fill it, and how it is written down.

`components` holds the parts that several stages share, `stages` the settings of each command, `checks` what they must
satisfy together, and `load` reads, joins and writes.
"""

from dph.config.checks import check_bounds as check_bounds
from dph.config.components import (
    AdvantageConfig as AdvantageConfig,
    AsideConfig as AsideConfig,
    CertifyConfig as CertifyConfig,
    DynamicSamplingConfig as DynamicSamplingConfig,
    LossConfig as LossConfig,
    ModelConfig as ModelConfig,
    MonitorConfig as MonitorConfig,
    MonitorSet as MonitorSet,
    NewModelConfig as NewModelConfig,
    OptimConfig as OptimConfig,
    OverlongConfig as OverlongConfig,
    Reading as Reading,
    RehearsalConfig as RehearsalConfig,
    RehearsalTerm as RehearsalTerm,
    RewardConfig as RewardConfig,
    RolloutConfig as RolloutConfig,
    SamplerConfig as SamplerConfig,
    TaskConfig as TaskConfig,
    VerifierConfig as VerifierConfig,
)
from dph.config.load import (
    absolute as absolute,
    comparable as comparable,
    differences as differences,
    every_setting as every_setting,
    field_docs as field_docs,
    flatten as flatten,
    from_dict as from_dict,
    is_settings_file as is_settings_file,
    load_settings as load_settings,
    merge_settings as merge_settings,
    narrowed as narrowed,
    nested as nested,
    preset_label as preset_label,
    preset_names as preset_names,
    read_settings as read_settings,
    to_dict as to_dict,
    to_toml as to_toml,
    unusual as unusual,
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
from dph.config.stages import (
    STAGES as STAGES,
    AuditConfig as AuditConfig,
    CertifyStageConfig as CertifyStageConfig,
    CheckConfig as CheckConfig,
    ClusterConfig as ClusterConfig,
    DemoConfig as DemoConfig,
    DoctorConfig as DoctorConfig,
    EvalConfig as EvalConfig,
    InitConfig as InitConfig,
    InterpolateConfig as InterpolateConfig,
    PartitionRule as PartitionRule,
    PasskConfig as PasskConfig,
    PresampleConfig as PresampleConfig,
    ReportConfig as ReportConfig,
    SftConfig as SftConfig,
    TrainConfig as TrainConfig,
    VerifyConfig as VerifyConfig,
    VerlConfig as VerlConfig,
)
