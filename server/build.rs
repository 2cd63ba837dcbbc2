//! Generates the gRPC services from `.proto` files, and says how the program is linked. The messages of the inference protocol live in
//! `oip`, those of a fleet here.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../models/oip/proto");
    println!("cargo:rerun-if-changed=fleet/proto");
    let cfg = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if [cfg("ARCH"), cfg("OS"), cfg("ENV")] == ["x86_64", "linux", "gnu"] {
        // The linker of this target is LLD, which keeps one copy of functions with equal code.
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
    let descriptors = protox::compile(["grpc_service.proto"], ["../models/oip/proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_transport(false)
        .extern_path(".inference", "::oip::proto")
        .compile_fds(descriptors)?;
    let descriptors = protox::compile(["fleet.proto"], ["fleet/proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("fleet.fds"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().build_client(true).build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
