//! The gRPC interface.

use super::headers::{self, On};
use super::{code, reasons, table};
use crate::fleet;

const INTRODUCTION: &str = "\
# gRPC

The address `server.grpc` (default 127.0.0.1:8001) serves these services, with TLS if `tls.cert` is set. Reflection describes all messages.
If `[identity]` or `tls.client_ca` is set, inference and shared memory need the role `infer`, model control and changes of settings need
`operate`, signals need `read`, and health needs none. All other methods need any role.

| service | |
|---|---|
| `inference.GRPCInferenceService` | Open Inference Protocol v2 with Triton's extensions |
| `tessera.fleet.v1.NodeSignals` | what requests would meet on this server, for [other servers](../nodes.md) |
| `grpc.health.v1.Health` | status of the server (empty name) and of each model by name |
| `grpc.reflection.v1.ServerReflection`, `v1alpha` | for tools such as grpcurl |

## Methods of `inference.GRPCInferenceService`
";

const FLEET: &str = "
## Methods of `tessera.fleet.v1.NodeSignals`
";

const ERRORS: &str = "
## Errors

The message of a status names the field and says what would be right. The metadata `x-tessera-reason` has the reason. The same reasons
are labels of metrics.
";

pub fn page() -> String {
    let row = |(name, about): (&str, String)| [code(name), about];
    let methods = table(["method", "answer"], methods(oip::proto::GRPC_SERVICE).map(row));
    let fleet = table(["method", "answer"], self::methods(fleet::proto::SOURCE).map(row));
    let errors = reasons(|row| code(&format!("{:?}", row.grpc)));
    format!("{INTRODUCTION}\n{methods}\n{FLEET}\n{fleet}\n{}{ERRORS}\n{errors}", headers::text(On::Grpc))
}

/// Methods of a `.proto` file with the comments above them.
fn methods(proto: &str) -> impl Iterator<Item = (&str, String)> {
    let mut comment: Vec<&str> = Vec::new();
    proto.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("//") {
            comment.push(text.trim());
            return None;
        }
        let about = std::mem::take(&mut comment).join(" ");
        let (name, _) = line.strip_prefix("rpc ")?.split_once('(')?;
        Some((name, about))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_a_comment() {
        let found: Vec<_> = methods(oip::proto::GRPC_SERVICE).collect();
        assert_eq!(found.len(), oip::proto::GRPC_SERVICE.matches("  rpc ").count());
        for (name, about) in found {
            assert!(about.ends_with('.'), "{name}: write a comment above it in the .proto file");
        }
    }
}
