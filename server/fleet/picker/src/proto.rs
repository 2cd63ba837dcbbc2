//! Messages and services, generated from the `.proto` files.

/// Between the nodes of a fleet, their pickers and gateways.
pub mod fleet {
    tonic::include_proto!("tessera.fleet.v1");
}

/// Envoy's external processing.
pub mod ext_proc {
    tonic::include_proto!("envoy.service.ext_proc.v3");
}
