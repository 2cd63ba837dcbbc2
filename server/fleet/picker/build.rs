//! Generates the services and messages of the picker, of the nodes, and of Envoy's external processing.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../proto");
    println!("cargo:rerun-if-changed=proto");
    let files = ["picker.proto", "fleet.proto", "external_processor.proto"];
    let descriptors = protox::compile(files, ["../proto", "proto"])?;
    tonic_prost_build::configure().build_client(true).bytes(".envoy").compile_fds(descriptors)?;
    Ok(())
}
