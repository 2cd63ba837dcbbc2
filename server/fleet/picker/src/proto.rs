//! Messages and services, generated from the `.proto` files.
#![expect(clippy::allow_attributes, clippy::allow_attributes_without_reason, reason = "generated code")]

/// Between the nodes of a fleet, their pickers and gateways.
pub mod fleet {
    tonic::include_proto!("tessera.fleet.v1");
}

/// Envoy's external processing.
#[expect(clippy::enum_variant_names, reason = "the names are Envoy's")]
pub mod ext_proc {
    tonic::include_proto!("envoy.service.ext_proc.v3");
}
