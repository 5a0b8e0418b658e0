"""Files as harnesses and spreadsheets write them, with what they say by construction."""

# ruff: noqa: E501  (one layout a line)

import csv
import io
import json
from typing import Any

SEVERAL = {"a": [1, 1, 0], "b": [0, 0, 0], "c": [1, 1, 1]}
"""The verdicts of the samples of each problem in layouts with several."""
ONE = {"a": 1, "b": 0, "c": 1}
"""The verdict of each problem in layouts with one sample."""
ROWS = [(id, number, verdict) for id, verdicts in SEVERAL.items() for number, verdict in enumerate(verdicts)]
Layout = tuple[dict[str, str], str]
"""Files by their names, of which the first part is what is read; and what is right: several, one, or refused."""


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(
    rows: list[dict[str, Any]],
    delimiter: str = ",",
    bom: bool = False,
    end: str = "\n",
    quoting: Any = csv.QUOTE_MINIMAL,
) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writeheader()
    writer.writerows(rows)
    return ("\ufeff" if bom else "") + out.getvalue()


def one_file(content: str) -> dict[str, str]:
    return {"a.jsonl": content}


def answered(id: str) -> dict[str, str]:
    return {"question": f"q {id}?", "answer": f"#### {id}"}


def of_inspect(id: str, number: int, verdict: int) -> dict[str, Any]:
    score = {"value": "C" if verdict else "I", "answer": "5", "explanation": "e"}
    output = {"completion": "x", "choices": [{"stop_reason": "stop"}]}
    return {
        "id": id,
        "epoch": number + 1,
        "input": f"q{id}",
        "target": "5",
        "messages": [],
        "output": output,
        "scores": {"match": score},
        "model_usage": {},
        "total_time": 1.2,
    }


def of_promptfoo(id: str, number: int, verdict: int) -> dict[str, Any]:
    graded = {
        "pass": bool(verdict),
        "score": float(verdict),
        "reason": "r",
        "componentResults": [{"pass": bool(verdict), "score": float(verdict)}],
    }
    tested = {
        "promptIdx": 0,
        "testIdx": ord(id) - 97,
        "testCase": {"vars": {"q": id}, "assert": [{"type": "equals"}]},
        "promptId": "p",
    }
    asked = {"provider": {"id": "openai:x", "label": ""}, "prompt": {"raw": f"q{id}", "label": "x"}, "vars": {"q": id}}
    response = {
        "response": {"output": f"x{number}", "tokenUsage": {"total": 3}},
        "success": bool(verdict),
        "failureReason": 0,
    }
    return {
        **tested,
        **asked,
        **response,
        "score": float(verdict),
        "latencyMs": 12 + number,
        "gradingResult": graded,
        "namedScores": {},
        "cost": 0.1,
    }


GERMAN = [{"Problem": id, "Sample": number, "Korrekt": "WAHR" if verdict else "FALSCH"} for id, number, verdict in ROWS]

LAYOUTS: dict[str, Layout] = {
    # lm-eval
    "lm-eval samples": ({"a/samples_gsm8k_2025-01-01T00-00-00.123456.jsonl": lines([{"doc_id": n, "doc": answered(i), "target": "5", "arguments": {"gen_args_0": {"arg_0": f"q {i}?", "arg_1": {"until": ["Q:"], "temperature": 0.0}}}, "resps": [["text"]], "filtered_resps": ["5"], "filter": "strict-match", "metrics": ["exact_match"], "doc_hash": f"h{i}", "prompt_hash": f"p{i}", "target_hash": "t", "exact_match": float(v)} for n, (i, v) in enumerate(ONE.items())]), "a/results_2025.json": json.dumps({"results": {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": .66, "exact_match_stderr,strict-match": .1}}, "n-samples": {"gsm8k": {"original": 3, "effective": 3}}, "config": {"model": "hf"}})}, "one"),
    "lm-eval two filters": (one_file(lines([{"doc_id": n, "doc": answered(i), "filter": f, "filtered_resps": ["5"], "resps": [["x"]], "exact_match": float(v)} for f in ("strict-match", "flexible-extract") for n, (i, v) in enumerate(ONE.items())])), "refused"),
    "lm-eval repeats": (one_file(lines([{"doc_id": n, "doc": answered(i), "resps": [["x", "y", "z"]], "filtered_resps": ["1", "2", "3"], "exact_match": float(sum(vs)>1)} for n, (i, vs) in enumerate(SEVERAL.items())])), "one"),
    "lm-eval mmlu acc": (one_file(lines([{"doc_id": n, "doc": answered(i), "acc": float(v), "acc_norm": float(v), "resps": [[["-1.2", "False"]], [["-0.2", "True"]]], "filtered_resps": [["-1.2", "False"], ["-0.2", "True"]]} for n, (i, v) in enumerate(ONE.items())])), "one"),
    "lm-eval ifeval": (one_file(lines([{"doc_id": n, "prompt_level_strict_acc": bool(v), "inst_level_strict_acc": [True, bool(v)], "prompt_level_loose_acc": bool(v), "inst_level_loose_acc": [True, bool(v)], "filter": "none"} for n, (i, v) in enumerate(ONE.items())])), "one"),
    "lm-eval humaneval pass@1": (one_file(lines([{"doc_id": n, "doc": {"task_id": f"HumanEval/{n}", "prompt": "def"}, "resps": [["a", "b", "c"]], "filtered_resps": [["a", "b", "c"]], "pass@1": sum(vs)/3, "filter": "create_test"} for n, (i, vs) in enumerate(SEVERAL.items())])), "refused"),
    # lighteval
    "lighteval details parquet-like jsonl": (one_file(lines([{"doc": {"query": f"q{i}", "choices": ["5"], "gold_index": 0, "id": str(n), "task_name": "lighteval|gsm8k|0"}, "metric": {"extractive_match": v}, "model_response": {"text": ["x"], "input_tokens": [1, 2]}} for n, (i, v) in enumerate(ONE.items())])), "one"),
    "lighteval old details": (one_file(lines([{"example": f"q{i}", "full_prompt": f"q{i}", "gold": ["5"], "predictions": ["5"], "metrics": {"qem": v, "pqem": v}, "num_asked_few_shots": 0} for n, (i, v) in enumerate(ONE.items())])), "one"),
    "lighteval pass@k": (one_file(lines([{"doc": {"query": f"q{i}", "id": str(n)}, "metric": {"pass@k:k=1&n=3": sum(vs)/3}} for n, (i, vs) in enumerate(SEVERAL.items())])), "refused"),
    # OpenCompass
    "opencompass details dict": ({"a.json": json.dumps({"accuracy": 66.67, "details": {str(n): {"prompt": f"q{i}", "origin_prediction": "x", "predictions": "5", "references": "5", "correct": bool(v)} for n, (i, v) in enumerate(ONE.items())}})}, "one"),
    "opencompass details list": ({"a.json": json.dumps({"accuracy": 66.67, "details": [{"pred": "5", "answer": "5", "correct": bool(v)} for v in ONE.values()]})}, "refused"),
    "opencompass details type": ({"a.json": json.dumps({"accuracy": 66.67, "details": {"type": "GEN", **{str(n): {"prompt": f"q{i}", "pred": "5", "refr": "5", "is_correct": bool(v)} for n, (i, v) in enumerate(ONE.items())}}})}, "one"),
    "opencompass predictions": ({"a.json": json.dumps({str(n): {"origin_prompt": f"q{i}", "prediction": "x", "gold": "5"} for n, i in enumerate(ONE)})}, "refused"),
    "opencompass summary csv": ({"a.csv": "dataset,version,metric,mode,model-a\ngsm8k,1d7fe4,accuracy,gen,66.67\nmath,393424,accuracy,gen,33.3\n"}, "refused"),
    "opencompass n runs": ({f"a/gsm8k_run{k}.json": json.dumps({"accuracy": 50.0, "details": {str(n): {"prompt": f"q{i}", "predictions": "5", "correct": bool(vs[k])} for n, (i, vs) in enumerate(SEVERAL.items())}}) for k in range(3)}, "several"),
    # verl
    "verl val jsonl": ({"a/100.jsonl": lines([{"input": f"q{i}", "output": f"x{k}", "gts": "5", "score": float(v), "step": 100, "reward": float(v), "acc": bool(v), "pred": str(v)} for i, k, v in ROWS])}, "several"),
    "verl val -1": ({"a/100.jsonl": lines([{"input": f"q{i}", "output": f"x{k}", "score": 1.0 if v else -1.0, "step": 100, "acc": bool(v)} for i, k, v in ROWS])}, "several"),
    "verl val steps folder": ({f"a/{s}.jsonl": lines([{"input": f"q{i}", "output": f"x{k}", "score": float(v), "step": s} for i, k, v in ROWS]) for s in (0, 100)}, "refused"),
    "verl val steps 0,1 folder": ({f"a/{s}.jsonl": lines([{"input": f"q{i}", "output": f"x{k}", "score": float(v), "step": s} for i, k, v in ROWS]) for s in (0, 1)}, "refused"),
    "verl parquet-like": (one_file(lines([{"data_source": "gsm8k", "prompt": [{"role": "user", "content": f"q{i}"}], "reward_model": {"ground_truth": "5", "style": "rule"}, "responses": [f"x{k}" for k in range(3)], "scores": vs, "extra_info": {"index": n, "split": "test"}} for n, (i, vs) in enumerate(SEVERAL.items())])), "several"),
    # TRL
    "trl completions": (one_file(lines([{"step": 1, "prompt": f"q{i}", "completion": f"x{k}", "accuracy_reward": float(v), "format_reward": 1.0, "advantage": .1} for i, k, v in ROWS])), "several"),
    "trl completions conv": (one_file(lines([{"step": 1, "prompt": [{"role": "user", "content": f"q{i}"}], "completion": [{"role": "assistant", "content": f"x{k}"}], "reward_correct": float(v)} for i, k, v in ROWS])), "several"),
    "trl two rewards": (one_file(lines([{"step": 1, "prompt": f"q{i}", "completion": f"x{k}", "correctness_reward_func": float(v)*2, "int_reward_func": .5, "xmlcount_reward_func": .1} for i, k, v in ROWS])), "refused"),
    "trl several steps": (one_file(lines([{"step": s, "prompt": f"q{i}", "completion": f"x{k}{s}", "accuracy_reward": float(v)} for s in (1, 2) for i, k, v in ROWS])), "refused"),
    "trl trainer_state": ({"trainer_state.json": json.dumps({"best_metric": None, "epoch": 1.0, "global_step": 3, "log_history": [{"step": s, "reward": .5, "reward_std": .1, "epoch": .1*s, "loss": .1} for s in (1, 2, 3)]})}, "refused"),
    # simple-evals
    "simple-evals allresults": ({"a.json": json.dumps({"score": .66, "metrics": {"score:std": .4}, "htmls": ["<p>"]*3, "convos": [[{"role": "user", "content": "q"}]]*3, "metadata": {"example_level_metadata": [{"score": float(v), "correct": bool(v)} for v in ONE.values()]}})}, "refused"),
    "simple-evals healthbench": (one_file(lines([{"score": .5*v, "metrics": {"overall_score": .5*v}, "rubric_items": [{"criterion": "c", "points": 3, "criteria_met": bool(v)}], "prompt_id": i} for i, v in ONE.items()])), "refused"),
    "simple-evals singleresult": ({"a.json": json.dumps({"single_eval_results": [{"score": float(v), "metrics": {"chars": 10}, "html": "x", "convo": []} for v in ONE.values()]})}, "refused"),
    # HELM
    "helm per_instance_stats": ({"per_instance_stats.json": json.dumps([{"instance_id": f"id{i}", "train_trial_index": 0, "stats": [{"name": {"name": "exact_match", "split": "test"}, "count": 1, "sum": float(v), "mean": float(v)}, {"name": {"name": "num_tokens", "split": "test"}, "count": 1, "sum": 20.0}]} for i, v in ONE.items()])}, "one"),
    "helm statistics that differ": ({"per_instance_stats.json": json.dumps([{"instance_id": f"id{i}", "train_trial_index": 0, "stats": [{"name": {"name": "exact_match", "split": "test"}, "count": 1, "sum": float(v), "mean": float(v)}, {"name": {"name": "prefix_exact_match", "split": "test"}, "count": 1, "sum": 1.0}]} for i, v in ONE.items()])}, "refused"),
    "helm statistics of perturbations": ({"per_instance_stats.json": json.dumps([{"instance_id": f"id{i}", "train_trial_index": 0, "perturbation": {"name": p}, "stats": [{"name": {"name": "exact_match", "split": "test"}, "count": 1, "sum": float(v), "mean": float(v)}, {"name": {"name": "num_tokens", "split": "test"}, "count": 1, "sum": 20.0}]} for p in ("typos", "lower") for i, v in ONE.items()])}, "refused"),
    "helm scenario_state": ({"scenario_state.json": json.dumps({"adapter_spec": {"method": "generation"}, "request_states": [{"instance": {"id": f"id{i}", "input": {"text": "q"}, "references": []}, "train_trial_index": 0, "result": {"success": True, "completions": [{"text": "x"}]}} for i in ONE]})}, "refused"),
    "helm display_predictions": ({"display_predictions.json": json.dumps([{"instance_id": f"id{i}", "predicted_text": "x", "train_trial_index": t, "stats": {"quasi_exact_match": float(v)}} for t in (0,) for i, v in ONE.items()])}, "one"),
    "helm display trials": ({"display_predictions.json": json.dumps([{"instance_id": f"id{i}", "predicted_text": f"x{k}", "train_trial_index": k, "stats": {"quasi_exact_match": float(v)}} for i, k, v in ROWS])}, "several"),
    "helm perturbation": ({"display_predictions.json": json.dumps([{"instance_id": f"id{i}", "predicted_text": "x", "train_trial_index": 0, "perturbation": p, "stats": {"exact_match": float(v)}} for p in ({"name": "typos"}, {"name": "lower"}) for i, v in ONE.items()])}, "refused"),
    # inspect
    "inspect json": ({"log.json": json.dumps({"version": 2, "status": "success", "eval": {"task": "t", "dataset": {"samples": 3}, "config": {"epochs": 3}}, "results": {"total_samples": 9, "completed_samples": 9, "scores": [{"name": "match", "scorer": "match", "metrics": {"accuracy": {"name": "accuracy", "value": .55}}}]}, "samples": [of_inspect(*r) for r in ROWS]})}, "several"),
    "inspect two scorers": ({"log.json": json.dumps({"status": "success", "samples": [dict(of_inspect(i, k, v), scores={"match": {"value": "C" if v else "I"}, "includes": {"value": "C"}}) for i, k, v in ROWS]})}, "refused"),
    "inspect dataframe csv": ({"a.csv": table([{"sample_id": f"u{i}{k}", "eval_id": "e", "id": i, "epoch": k+1, "input": f"q{i}", "target": "5", "score_match": "C" if v else "I", "model_usage": "{}", "total_time": 1.0, "error": ""} for i, k, v in ROWS])}, "several"),
    "inspect dict value": ({"log.json": json.dumps({"status": "success", "samples": [dict(of_inspect(i, k, v), scores={"s": {"value": {"accuracy": v, "fmt": 1}}}) for i, k, v in ROWS]})}, "refused"),
    "inspect error sample": ({"log.json": json.dumps({"status": "success", "samples": [of_inspect(*r) for r in ROWS[:-1]] + [dict(of_inspect(*ROWS[-1]), scores=None, error={"message": "boom"})]})}, "refused"),
    # evalplus
    "evalplus eval_results": ({"a_eval_results.json": json.dumps({"date": "2025", "hash": "h", "eval": {f"HumanEval/{i}": [{"task_id": f"HumanEval/{i}", "solution": "def", "base_status": "pass" if v else "fail", "plus_status": "pass" if v else "fail", "base_fail_tests": [], "plus_fail_tests": []} for v in vs] for i, vs in SEVERAL.items()}})}, "several"),
    "evalplus base!=plus": ({"a_eval_results.json": json.dumps({"eval": {f"HumanEval/{i}": [{"solution": "def", "base_status": "pass", "plus_status": "pass" if v else "fail"} for v in vs] for i, vs in SEVERAL.items()}})}, "refused"),
    "evalplus old": ({"a.json": json.dumps({"eval": {f"HumanEval/{i}": {"nfiles": 3, "base": [["pass" if v else "fail", [True, bool(v)]] for v in vs], "plus": [["pass" if v else "fail", [bool(v)]] for v in vs]} for i, vs in SEVERAL.items()}})}, "several"),
    "evalplus old, base!=plus": ({"a.json": json.dumps({"eval": {f"HumanEval/{i}": {"nfiles": 3, "base": [["success", [True]] for v in vs], "plus": [["pass" if v else "fail", [bool(v)]] for v in vs]} for i, vs in SEVERAL.items()}})}, "refused"),
    "bigcode": ({"a.json": json.dumps({i: [[k, {"task_id": i, "passed": bool(v), "result": "passed" if v else "failed: x", "completion_id": k}] for k, v in enumerate(vs)] for i, vs in SEVERAL.items()})}, "several"),
    "humaneval results jsonl": (one_file(lines([{"task_id": f"HumanEval/{i}", "completion": f"x{k}", "result": "passed" if v else "failed: AssertionError", "passed": bool(v)} for i, k, v in ROWS])), "several"),
    # lcb
    "lcb eval_all": ({"a.json": json.dumps([{"question_title": "t", "question_content": f"q{i}", "platform": "leetcode", "question_id": i, "contest_id": "c", "difficulty": "easy", "output_list": ["x"]*3, "code_list": ["x"]*3, "graded_list": [bool(v) for v in vs], "pass@1": sum(vs)/3, "metadata": ["{}"]*3} for i, vs in SEVERAL.items()])}, "several"),
    "lcb eval summary": ({"a_eval.json": json.dumps([{"pass@1": .55, "detail": {"pass@1": {str(n): sum(vs)/3 for n, vs in enumerate(SEVERAL.values())}}}, {str(n): [[bool(v), True] for v in vs] for n, vs in enumerate(SEVERAL.values())}, [["{}"]*3]*3])}, "refused"),
    "apps all_results": ({"all_results.json": json.dumps({str(n): [[bool(v), True] if v else [-2] for v in vs] for n, vs in enumerate(SEVERAL.values())})}, "several"),
    # bigcodebench
    "bigcodebench": ({"a.json": json.dumps({"date": "x", "eval": {f"BigCodeBench/{i}": [{"task_id": f"BigCodeBench/{i}", "solution": "def", "status": "pass" if v else "fail", "details": {"ALL": "tb"}} for v in vs] for i, vs in SEVERAL.items()}})}, "several"),
    # swe-bench
    "swebench report": ({"a.json": json.dumps({"total_instances": 3, "submitted_instances": 3, "completed_instances": 3, "resolved_instances": 2, "unresolved_instances": 1, "empty_patch_instances": 0, "error_instances": 0, "completed_ids": ["a", "b", "c"], "incomplete_ids": [], "empty_patch_ids": [], "submitted_ids": ["a", "b", "c"], "resolved_ids": ["a", "c"], "unresolved_ids": ["b"], "error_ids": [], "schema_version": 2})}, "one"),
    "swebench per instance": ({f"a/{i}/report.json": json.dumps({i: {"patch_is_None": False, "patch_exists": True, "patch_successfully_applied": True, "resolved": bool(v), "tests_status": {"FAIL_TO_PASS": {"success": ["t"], "failure": []}, "PASS_TO_PASS": {"success": ["t"], "failure": []}}}}) for i, v in ONE.items()}, "one"),
    "swebench results old": ({"results.json": json.dumps({"no_generation": [], "no_logs": [], "resolved": ["a", "c"], "generated": ["a", "b", "c"], "with_logs": ["a", "b", "c"], "applied": ["a", "b", "c"]})}, "one"),
    "swe-agent results": ({"a.json": json.dumps({"submitted": 3, "resolved": 2, "resolved_ids": ["a", "c"]})}, "refused"),
    "openhands output": (one_file(lines([{"instance_id": i, "test_result": {"git_patch": "x", "report": {"empty_generation": False, "resolved": bool(v), "failed_apply_patch": False, "error_eval": False, "test_timeout": False}}, "metadata": {"agent_class": "CodeAct"}, "history": [], "metrics": {"accumulated_cost": .1}, "error": None} for i, v in ONE.items()])), "one"),
    # promptfoo
    "promptfoo json": ({"a.json": json.dumps({"evalId": "e", "results": {"version": 3, "timestamp": "t", "prompts": [{"raw": "x", "label": "l", "metrics": {"score": 5, "testPassCount": 5}}], "results": [of_promptfoo(i, 0, v) for i, v in ONE.items()], "stats": {"successes": 2, "failures": 1}}, "config": {}, "shareableUrl": None})}, "one"),
    "promptfoo repeats": ({"a.json": json.dumps({"results": {"results": [of_promptfoo(*r) for r in ROWS], "stats": {"successes": 5}}})}, "several"),
    "promptfoo two providers": ({"a.json": json.dumps({"results": {"results": [dict(of_promptfoo(i, 0, v), provider={"id": p}) for p in ("x", "y") for i, v in ONE.items()]}})}, "refused"),
    "promptfoo two prompts": ({"a.json": json.dumps({"results": {"results": [dict(of_promptfoo(i, 0, v), promptIdx=p, prompt={"raw": f"{p} q{i}"}) for p in (0, 1) for i, v in ONE.items()]}})}, "refused"),
    "promptfoo csv": ({"a.csv": table([{"q": i, "[openai:x] Q: {{q}}": ("[PASS] x" if v else "[FAIL] x")} for i, v in ONE.items()])}, "refused"),
    # deepeval
    "deepeval": ({"a.json": json.dumps({"testCases": [{"name": f"test_{i}", "input": f"q{i}", "actualOutput": "x", "expectedOutput": "5", "success": bool(v), "metricsData": [{"name": "Correctness", "threshold": .5, "success": bool(v), "score": .9*v}], "runDuration": 1.0, "order": n} for n, (i, v) in enumerate(ONE.items())], "metricsScores": [{"metric": "Correctness", "scores": [.9, 0, .9], "passes": 2, "fails": 1}], "testPassed": 2, "testFailed": 1})}, "one"),
    "deepeval test_results": ({"a.json": json.dumps({"test_results": [{"name": f"test_{i}", "success": bool(v), "input": f"q{i}", "metrics_data": [{"name": "c", "score": .9*v, "success": bool(v), "threshold": .5}]} for i, v in ONE.items()], "confident_link": None})}, "one"),
    # wandb
    "wandb table": ({"t.table.json": json.dumps({"columns": ["id", "prompt", "response", "correct"], "data": [[i, f"q{i}", f"x{k}", bool(v)] for i, k, v in ROWS], "ncols": 4, "nrows": 9})}, "several"),
    "wandb export csv": ({"wandb_export.csv": table([{"Step": s, "run-a - eval/pass@1": .5, "run-a - eval/pass@1__MIN": .5, "run-a - eval/pass@1__MAX": .5} for s in range(3)], quoting=csv.QUOTE_ALL)}, "refused"),
    "wandb history": (one_file(lines([{"_step": s, "_runtime": s, "_timestamp": 1.0*s, "train/reward": .5, "train/loss": .1} for s in range(3)])), "refused"),
    "wandb weave calls": (one_file(lines([{"id": f"u{n}", "op_name": "predict_and_score", "inputs": {"example": {"id": i, "question": f"q{i}"}}, "output": {"model_output": "x", "scores": {"match": {"correct": bool(v)}}, "model_latency": 1.0}} for n, (i, k, v) in enumerate(ROWS)])), "refused"),
    # Excel
    "excel german": ({"a.csv": table(GERMAN, ";", True, "\r\n")}, "refused"),
    "excel ; bom true": ({"a.csv": table([{"id": i, "sample": k, "correct": "TRUE" if v else "FALSE", "Antwort": "1,5"} for i, k, v in ROWS], ";", True, "\r\n")}, "several"),
    "excel quoted": ({"a.csv": table([{"id": i, "sample": k, "correct": v, "text": 'a "b"; c\nd'} for i, k, v in ROWS], ";", True, "\r\n", csv.QUOTE_ALL)}, "several"),
    "excel sep=": ({"a.csv": "sep=;\r\n" + table([{"id": i, "sample": k, "correct": v} for i, k, v in ROWS], ";", False, "\r\n")}, "several"),
    "excel trailing empty cols": ({"a.csv": "id,sample,correct,,\r\n" + "".join(f"{i},{k},{v},,\r\n" for i, k, v in ROWS)}, "several"),
    "excel trailing empty rows": ({"a.csv": table([{"id": i, "sample": k, "correct": v} for i, k, v in ROWS]) + ",,\n,,\n"}, "several"),
    "excel index column": ({"a.csv": ",id,sample,correct\n" + "".join(f"{n},{i},{k},{v}\n" for n, (i, k, v) in enumerate(ROWS))}, "several"),
    "pandas index Unnamed": ({"a.csv": "Unnamed: 0,id,correct\n" + "".join(f"{n},{i},{v}\n" for n, (i, k, v) in enumerate(ROWS))}, "several"),
    "excel merged id cells": ({"a.csv": "id,sample,correct\n" + "".join(f"{i if k == 0 else ''},{k},{v}\n" for i, k, v in ROWS)}, "refused"),
    "excel title row": ({"a.csv": "Results of model x,,\nid,sample,correct\n" + "".join(f"{i},{k},{v}\n" for i, k, v in ROWS)}, "refused"),
    "excel yes/no": ({"a.csv": table([{"ID": i, "Run": k, "Correct?": "Yes" if v else "No"} for i, k, v in ROWS])}, "refused"),
    "excel x marks": ({"a.csv": table([{"ID": i, "Run": k, "Correct": "x" if v else ""} for i, k, v in ROWS])}, "refused"),
    "excel check marks": ({"a.csv": table([{"ID": i, "Run": k, "Correct": "✓" if v else "✗"} for i, k, v in ROWS])}, "several"),
    "excel percent": ({"a.csv": table([{"ID": i, "Run": k, "Score": "100 %" if v else "0 %"} for i, k, v in ROWS])}, "several"),
    "excel wide runs": ({"a.csv": table([{"id": i, "run1": vs[0], "run2": vs[1], "run3": vs[2]} for i, vs in SEVERAL.items()])}, "several"),
    "excel wide Run 1": ({"a.csv": table([{"id": i, "Run 1": vs[0], "Run 2": vs[1], "Run 3": vs[2]} for i, vs in SEVERAL.items()])}, "several"),
    "excel wide + mean": ({"a.csv": table([{"id": i, "run1": vs[0], "run2": vs[1], "run3": vs[2], "mean": round(sum(vs)/3, 2)} for i, vs in SEVERAL.items()])}, "several"),
    "excel wide models": ({"a.csv": table([{"id": i, "gpt-4": v, "qwen-7b": 1} for i, v in ONE.items()])}, "refused"),
    "excel wide models correct": ({"a.csv": table([{"id": i, "gpt4_correct": v, "qwen_correct": 1} for i, v in ONE.items()])}, "refused"),
}  # fmt: skip
