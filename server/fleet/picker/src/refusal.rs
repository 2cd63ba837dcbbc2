//! What clients see of a request that is not sent: statuses and reasons are those of a server.

use fleet_core::pick::NotPicked;
use router_core::Reason;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub http: u16,
    /// gRPC status code.
    pub grpc: u32,
    /// Value of the header `x-tessera-reason` and of the label `reason`.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
}

impl Refusal {
    /// A header that cannot be read.
    pub fn malformed(message: String) -> Self {
        Self { http: 400, grpc: 3, reason: "malformed", message }
    }

    /// The answer to a request for this model.
    pub fn of(not_picked: NotPicked, model: &str) -> Self {
        let (http, grpc, reason) = match not_picked {
            NotPicked::UnknownModel => (404, 5, "unknown_model"),
            NotPicked::NoNode | NotPicked::NotOwner => (503, 14, "model_not_ready"),
            NotPicked::Router(reason) => match reason {
                Reason::BatchTooLarge => (400, 3, "malformed"),
                Reason::QueueFull | Reason::MemoryFull => (503, 14, "queue_full"),
                Reason::DeadlineUnmeetable => (503, 14, "deadline_unmeetable"),
                Reason::Shed => (503, 14, "shed"),
                Reason::DeadlinePassed => (504, 4, "expired"),
                Reason::Quota => (429, 8, "quota"),
                Reason::Draining => (503, 14, "draining"),
                _ => (503, 14, "model_not_ready"),
            },
        };
        let message = match not_picked {
            NotPicked::UnknownModel => format!("model '{model}' is not on any node of the fleet"),
            NotPicked::NoNode | NotPicked::NotOwner => {
                format!("model '{model}' is not ready on any node of the fleet")
            }
            NotPicked::Router(reason) => match reason {
                Reason::BatchTooLarge => {
                    format!("x-tessera-rows: expected at most the largest batch of model '{model}'")
                }
                Reason::QueueFull | Reason::MemoryFull => {
                    format!("the fleet's queue of model '{model}' is full")
                }
                Reason::DeadlineUnmeetable => {
                    format!(
                        "no node of the fleet can answer a request for model '{model}' within its deadline"
                    )
                }
                Reason::Shed => {
                    format!("request for model '{model}' was shed so that others meet their deadlines")
                }
                Reason::DeadlinePassed => {
                    format!("the deadline of the request for model '{model}' passed before a node was free")
                }
                _ => format!("request for model '{model}' was refused: {not_picked}"),
            },
        };
        Self { http, grpc, reason, message }
    }

    /// The router's reason of that name, for what another picker says. `None`: no reason is called so.
    pub fn reason_named(name: &str) -> Option<Reason> {
        Some(match name {
            "malformed" => Reason::BatchTooLarge,
            "queue_full" => Reason::QueueFull,
            "deadline_unmeetable" => Reason::DeadlineUnmeetable,
            "shed" => Reason::Shed,
            "expired" => Reason::DeadlinePassed,
            "quota" => Reason::Quota,
            "draining" => Reason::Draining,
            _ => return None,
        })
    }

    /// Whether another attempt may succeed a little later.
    pub fn may_be_retried(&self) -> bool {
        matches!(self.http, 429 | 503)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_picker_understands_each_reason() {
        for reason in [
            Reason::BatchTooLarge,
            Reason::QueueFull,
            Reason::MemoryFull,
            Reason::DeadlineUnmeetable,
            Reason::Shed,
            Reason::DeadlinePassed,
            Reason::Quota,
            Reason::Draining,
        ] {
            let name = Refusal::of(NotPicked::Router(reason), "m").reason;
            let understood = Refusal::reason_named(name).unwrap();
            assert_eq!(Refusal::of(NotPicked::Router(understood), "m").reason, name);
        }
        assert_eq!(Refusal::reason_named("model_not_ready"), None, "the picker that asked decides");
    }
}
