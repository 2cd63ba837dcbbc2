//! Generates the gRPC service from the protocol's `.proto` files; the messages themselves live in `oip`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../models/oip/proto");
    let descriptors = protox::compile(["grpc_service.proto"], ["../models/oip/proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_transport(false)
        .extern_path(".inference", "::oip::proto")
        .compile_fds(descriptors)?;
    Ok(())
}
