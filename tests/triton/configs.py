"""Files of Triton's `config.pbtxt` that Tessera and a real Triton both load, and models for them."""

from __future__ import annotations

from pathlib import Path

from fixtures import models

NAMED = """
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
"""
BATCHED = 'backend: "onnxruntime"\nmax_batch_size: 8\n' + NAMED

WARM_UP = """
model_warmup {
  name: "first" batch_size: 2 count: 3
  inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 4 ] random_data: true } }
}
model_warmup {
  name: "second"
  inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 2, 4 ] zero_data: true } }
}
"""

# Name -> text. The model is an identity of [N, M] unless `MODELS` has another.
CONFIGS = {
    "empty": "",
    "backend_only": 'backend: "onnxruntime"\n',
    "platform_only": 'platform: "onnxruntime_onnx"\n',
    "both": 'backend: "onnxruntime"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\n' + NAMED,
    "batched": BATCHED,
    "named": 'name: "named"\n' + BATCHED,
    "unbatched": """backend: "onnxruntime"
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, -1 ] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, -1 ] }""",
    "fixed_dims": """backend: "onnxruntime" max_batch_size: 0
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2, 3 ] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2, 3 ] }""",
    "formats": """backend: "onnxruntime" max_batch_size: 2
        input { name: "INPUT0" data_type: TYPE_FP32 format: FORMAT_NONE dims: [ 4 ] reshape { shape: [ 2, 2 ] } }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } }""",
    "dynamic": BATCHED + "dynamic_batching { }",
    "preferred": BATCHED + "dynamic_batching { preferred_batch_size: [ 8, 4 ] max_queue_delay_microseconds: 100 }",
    "ordered": BATCHED + "dynamic_batching { preserve_ordering: true }",
    "levels": BATCHED
    + """dynamic_batching { priority_levels: 3 default_priority_level: 2
        default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 5000000 allow_timeout_override: true
          max_queue_size: 10 } }""",
    "all_versions": BATCHED + "version_policy { all { } }",
    "latest_versions": BATCHED + "version_policy { latest { num_versions: 2 } }",
    "specific_versions": BATCHED + "version_policy { specific { versions: [ 1 ] } }",
    "one_instance": BATCHED + "instance_group { count: 1 kind: KIND_CPU }",
    "counted": BATCHED + "instance_group [ { count: 2 } ]",
    "default_count": BATCHED + "instance_group [ { kind: KIND_CPU } ]",
    "groups": BATCHED + 'instance_group [ { count: 1 kind: KIND_CPU name: "first" }, { count: 1 kind: KIND_CPU } ]',
    "automatic": BATCHED + "instance_group { kind: KIND_AUTO }",
    "parameters": BATCHED
    + """parameters [ { key: "intra_op_thread_count" value { string_value: "1" } },
        { key: "other" value { string_value: "x" } } ]""",
    "file_name": BATCHED + 'default_model_filename: "model.onnx"',
    "graph_level": BATCHED + "optimization { graph { level: 1 } }",
    "high_priority": BATCHED + "optimization { priority: PRIORITY_MAX }",
    "pinned": BATCHED
    + """optimization { input_pinned_memory { enable: false } gather_kernel_buffer_threshold: 16 eager_batching: true }""",
    "cuda_graphs": BATCHED + "optimization { cuda { graphs: true busy_wait_events: true } }",
    "warm_up": BATCHED + WARM_UP,
    "no_cache": BATCHED + "response_cache { enable: false }",
    "labels": """backend: "onnxruntime" max_batch_size: 8
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] label_filename: "labels.txt" }""",
    "not_decoupled": BATCHED + "model_transaction_policy { decoupled: false }",
    "two_inputs": "",
    "text": "",
}

MODELS = {
    "fixed_dims": models.identity("FP32", [2, 3]),
    "formats": models.identity("FP32", ["N", 2, 2]),
    "two_inputs": models.add_sub(),
    "text": models.identity("BYTES", ["N", 2]),
}


def write(repository: Path) -> None:
    """Writes a repository with every configuration."""
    for name, text in CONFIGS.items():
        model = MODELS.get(name, models.identity("FP32", ["N", "M"]))
        versions = (1, 2, 3) if name.endswith("_versions") else (1,)
        for version in versions:
            models.place(repository, name, model, version)
        folder = repository / name
        (folder / "config.pbtxt").write_text(text)
        (folder / "labels.txt").write_text("cat\ndog\n")
