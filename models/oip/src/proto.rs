//! The protobuf messages of `inference.GRPCInferenceService`, as the `.proto` files in `proto/` describe them.
//!
//! `bytes` fields share the buffer that they were decoded from. The server generates the service from the same files,
//! with `.inference` mapped to this module.

#![expect(missing_docs, reason = "the fields are documented by the protocol; generated code repeats no docs")]

use crate::Datatype;
use serde::Serializer;

include!(concat!(env!("OUT_DIR"), "/inference.rs"));

/// The compiled `.proto` files (a `google.protobuf.FileDescriptorSet`), for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inference.fds"));

/// The source of the gRPC service; its comments describe the methods.
pub const GRPC_SERVICE: &str = include_str!("../proto/grpc_service.proto");

/// An enumeration that protobuf JSON prints by name.
trait NamedEnum: TryFrom<i32> {
    fn name(self) -> &'static str;
}

macro_rules! named_enums {
    ($($path:ty),* $(,)?) => {
        $(impl NamedEnum for $path {
            fn name(self) -> &'static str {
                self.as_str_name()
            }
        })*
    };
}

named_enums![
    DataType,
    batch_input::Kind,
    batch_output::Kind,
    model_input::Format,
    model_instance_group::Kind,
    model_instance_group::secondary_device::SecondaryDeviceKind,
    model_optimization_policy::ModelPriority,
    model_queue_policy::TimeoutAction,
    model_sequence_batching::control::Kind,
];

/// Prints the name of an enumeration value, or the number if no name is known, as protobuf JSON does.
fn enum_name<E: NamedEnum, S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    match E::try_from(*value) {
        Ok(named) => serializer.serialize_str(named.name()),
        Err(_) => serializer.serialize_i32(*value),
    }
}

/// Protobuf calls datatypes `TYPE_FP32` and the like, and `BYTES` a string.
impl From<Datatype> for DataType {
    fn from(datatype: Datatype) -> Self {
        let name = if datatype == Datatype::Bytes { "STRING" } else { datatype.as_str() };
        Self::from_str_name(&format!("TYPE_{name}")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datatype_has_a_name_in_protobuf() {
        for datatype in Datatype::ALL {
            assert_ne!(DataType::from(datatype), DataType::TypeInvalid, "{datatype}");
        }
        assert_eq!(DataType::from(Datatype::Bytes), DataType::TypeString);
    }

    #[test]
    fn a_configuration_prints_as_protobuf_json() {
        let config = ModelConfig {
            name: "m".into(),
            version_policy: Some(ModelVersionPolicy {
                policy_choice: Some(model_version_policy::PolicyChoice::Latest(
                    model_version_policy::Latest { num_versions: 1 },
                )),
            }),
            input: vec![ModelInput {
                name: "x".into(),
                data_type: DataType::TypeFp32.into(),
                dims: vec![-1, 16],
                ..ModelInput::default()
            }],
            scheduling_choice: Some(model_config::SchedulingChoice::DynamicBatching(ModelDynamicBatching {
                preferred_batch_size: vec![4, 8],
                max_queue_delay_microseconds: 100,
                priority_queue_policy: [(
                    2,
                    ModelQueuePolicy { timeout_action: 9, ..ModelQueuePolicy::default() },
                )]
                .into(),
                ..ModelDynamicBatching::default()
            })),
            ..ModelConfig::default()
        };
        let json = serde_json::to_value(&config).unwrap();
        assert_eq!(json["version_policy"], serde_json::json!({"latest": {"num_versions": 1}}));
        assert_eq!(
            json["input"],
            serde_json::json!([{
                "name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [-1, 16],
                "is_shape_tensor": false, "allow_ragged_batch": false, "optional": false,
                "is_non_linear_format_io": false
            }])
        );
        assert_eq!(json["dynamic_batching"]["max_queue_delay_microseconds"], 100);
        assert_eq!(json["dynamic_batching"]["priority_queue_policy"]["2"]["timeout_action"], 9);
        assert_eq!(json["metric_tags"], serde_json::json!({}));
        assert_eq!(json.get("sequence_batching"), None);
        assert_eq!(json.get("optimization"), None);
    }

    #[test]
    fn statistics_print_numbers() {
        let response = ModelStatisticsResponse {
            model_stats: vec![ModelStatistics {
                name: "m".into(),
                version: "1".into(),
                inference_count: u64::MAX,
                memory_usage: vec![MemoryUsage { r#type: "CPU".into(), id: 0, byte_size: 7 }],
                ..ModelStatistics::default()
            }],
        };
        let json = serde_json::to_value(&response).unwrap();
        assert_eq!(json["model_stats"][0]["inference_count"], u64::MAX);
        assert_eq!(
            json["model_stats"][0]["memory_usage"],
            serde_json::json!([{"type": "CPU", "id": 0, "byte_size": 7}])
        );
        assert_eq!(json["model_stats"][0]["batch_stats"], serde_json::json!([]));
    }
}
