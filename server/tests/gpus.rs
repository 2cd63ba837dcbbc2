//! The binary on machines with GPUs, whose driver is the stand-in: what is found, what is said, what is served.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use cuda_standin::{Driver, Shape, staged};
use serde_json::Value;

const TESSERA: &str = env!("CARGO_BIN_EXE_tessera");

/// What `tessera doctor` says of GPUs.
fn diagnosis(options: &[&str]) -> (String, String) {
    let set = ["--set", "server.http=127.0.0.1:0", "--set", "server.grpc=127.0.0.1:0"];
    let told = Command::new(TESSERA).args(["doctor", "--json"]).args(set).args(options).output().unwrap();
    let report: Value = serde_json::from_slice(&told.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let gpu = findings.clone().find(|finding| finding["subject"] == "NVIDIA GPU").unwrap();
    let word = |key: &str| gpu[key].as_str().unwrap().to_owned();
    (word("verdict"), word("detail"))
}

/// The first line of a server that looks for GPUs, which is ended then.
fn announcement() -> Value {
    let options =
        ["serve", "--json", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Command::new(TESSERA)
        .args(options)
        .args(["--set", "devices.gpus=auto", "--set", "server.log_level=error"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn a_gpu_is_described_and_not_used_unasked() {
    staged("a_gpu_is_described_and_not_used_unasked", &Driver::Standin(Shape::default()), || {
        let (verdict, detail) = diagnosis(&[]);
        assert_eq!(verdict, "ok");
        assert_eq!(
            detail,
            "gpu0: Stand-in GPU, 132 SMs, 81920 MiB, driver 13.0: cuda-green; not used: set devices.gpus = \"auto\""
        );
        let (verdict, detail) =
            diagnosis(&["--set", "devices.gpus=auto", "--set", "devices.gpu_backend=cuda-mps"]);
        assert_eq!(verdict, "problem");
        assert!(detail.contains("backend `cuda-mps` cannot be had: no MPS control daemon"), "{detail}");
    });
}

#[test]
fn an_old_driver_is_used_as_it_can_be() {
    let old = Shape { driver: 12_020, ..Shape::default() };
    staged("an_old_driver_is_used_as_it_can_be", &Driver::Standin(old), || {
        let (verdict, detail) = diagnosis(&["--set", "devices.gpus=auto"]);
        assert_eq!(verdict, "ok");
        assert!(
            detail.contains("driver 12.2: cuda-stream; not cuda-green: driver 12.2 has no streams"),
            "{detail}"
        );
    });
}

#[test]
fn without_a_driver_cores_serve_and_one_line_says_why() {
    staged("without_a_driver_cores_serve_and_one_line_says_why", &Driver::Broken, || {
        let (verdict, detail) = diagnosis(&["--set", "devices.gpus=auto"]);
        assert_eq!(verdict, "absent");
        assert!(detail.starts_with("no NVIDIA driver") && detail.ends_with("CPU cores serve"), "{detail}");
        let announced = announcement();
        assert_eq!(announced["devices"][0]["backend"], "cpu-cores");
        assert_eq!(announced["ready"], true);
    });
}

#[test]
fn each_gpu_is_a_device_cut_in_units_and_in_a_process_of_its_own() {
    let two = Shape { devices: 2, ..Shape::default() };
    staged("each_gpu_is_a_device_cut_in_units_and_in_a_process_of_its_own", &Driver::Standin(two), || {
        let announced = announcement();
        let devices = announced["devices"].as_array().unwrap();
        assert_eq!(devices.len(), 2, "{announced}");
        for (device, name) in devices.iter().zip(["gpu0", "gpu1"]) {
            assert_eq!((&device["name"], &device["backend"]), (&name.into(), &"cuda-green".into()));
            assert_eq!(device["units"], 16);
            assert_eq!(device["guarantees"]["fault_domain"], "device");
            assert_eq!(device["guarantees"]["resize"], "live");
        }
        assert_eq!(announced["lanes"].as_array().unwrap().len(), 2);
        // No engine here runs on a GPU: that is said of the model, and the server is not ready.
        assert_eq!(announced["ready"], false);
        let reason = announced["models"][0]["reason"].as_str().unwrap();
        assert!(reason.contains("CUDA") || reason.contains("ONNX Runtime"), "{reason}");
    });
}
