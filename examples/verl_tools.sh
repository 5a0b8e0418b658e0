#!/usr/bin/env bash
# Three turns with the SQL tool, adapters and shared prompts in verl, with a gate on the sampler.
#
#     examples/verl_tools.sh MODEL DATA OUT [KEY=VALUE of verl's configuration …]
#
# MODEL needs a chat template that calls tools; `hermes` names verl's parser of the calls. DATA is the folder that
# `python -m dph.integrations.verl.data` wrote for SQL problems. Before each update the sampler's log-probabilities are
# compared with the trainer's: a sampler with other weights, for example without the newest adapters, ends the run.
set -euo pipefail
model="$1" data="$2" out="$3" policy=actor_rollout_ref
mkdir -p "$out"
echo "tools: [{class_name: dph.integrations.verl.tools.QueryTool, config: {type: native}}]" >"$out/tools.yaml"
exec "${PYTHON:-python}" -m dph.integrations.verl hydra.run.dir="$out/hydra" \
    trainer.default_local_dir="$out" trainer.total_training_steps=100 trainer.n_gpus_per_node=1 \
    data.train_files="$data/train.parquet" data.val_files="$data/val.parquet" data.train_batch_size=32 \
    data.max_prompt_length=4096 data.max_response_length=4096 \
    $policy.model.path="$model" $policy.model.lora_rank=32 $policy.model.target_modules=all-linear \
    $policy.actor.optim.lr=1e-5 $policy.actor.ppo_mini_batch_size=32 $policy.actor.ppo_max_token_len_per_gpu=16384 \
    $policy.rollout.name=vllm $policy.rollout.n=8 $policy.rollout.tensor_model_parallel_size=1 \
    $policy.rollout.agent.default_agent_loop=tool_agent $policy.rollout.multi_turn.enable=True \
    $policy.rollout.multi_turn.format=hermes $policy.rollout.multi_turn.tool_config_path="$out/tools.yaml" \
    $policy.rollout.multi_turn.max_assistant_turns=3 $policy.rollout.multi_turn.max_tool_response_length=4000 \
    +ray_kwargs.ray_init.runtime_env.env_vars.VERL_ENGINE_VENDOR=dph "${@:4}"
