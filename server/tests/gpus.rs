//! Tests of the binary on machines with GPUs, with the stand-in driver.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cuda_standin::{Driver, Shape, staged};
use serde_json::Value;

const TESSERA: &str = env!("CARGO_BIN_EXE_tessera");

/// The finding of `tessera doctor` about GPUs.
fn diagnosis(options: &[&str]) -> (String, String) {
    let set = ["--set", "server.http=127.0.0.1:0", "--set", "server.grpc=127.0.0.1:0"];
    let told = Command::new(TESSERA).args(["doctor", "--json"]).args(set).args(options).output().unwrap();
    let report: Value = serde_json::from_slice(&told.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let gpu = findings.clone().find(|finding| finding["subject"] == "NVIDIA GPU").unwrap();
    let word = |key: &str| gpu[key].as_str().unwrap().to_owned();
    (word("verdict"), word("detail"))
}

/// A server with `devices.gpus = "auto"`. Dropping it ends the process.
struct Server {
    process: Child,
    announced: Value,
}

impl Server {
    /// Starts a server with additional settings and environment variables.
    fn start(settings: &[&str], variables: &[(&str, &Path)]) -> Self {
        let here = "127.0.0.1:0";
        let mut command = Command::new(TESSERA);
        command.args(["serve", "--json", "--http", here, "--grpc", here, "--metrics", here, "--admin", here]);
        command.args(["--set", "devices.gpus=auto"]);
        command.args(settings.iter().flat_map(|setting| ["--set", setting])).envs(variables.iter().copied());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { announced: serde_json::from_str(&line).unwrap(), process }
    }

    /// Waits until `/metrics` contains `part`, and returns its text.
    fn metrics(&self, part: &str) -> String {
        let address = self.announced["metrics"].as_str().unwrap().trim_start_matches("http://");
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let mut stream = TcpStream::connect(address.trim_end_matches("/metrics")).unwrap();
            write!(stream, "GET /metrics HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            if text.contains(part) {
                return text;
            }
            assert!(Instant::now() < until, "no {part} in\n{text}");
        }
    }

    /// Values of a variable in the environments of the server's workers.
    fn workers_have(&self, variable: &str) -> Vec<String> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let children =
            threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
        let numbers: Vec<u32> = children
            .flat_map(|line| line.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
            .collect();
        let start = format!("{variable}=");
        let of = |id: &u32| {
            let environment = std::fs::read(format!("/proc/{id}/environ")).ok()?;
            let environment = String::from_utf8_lossy(&environment).into_owned();
            environment.split('\0').find_map(|entry| Some(entry.strip_prefix(&start)?.to_owned()))
        };
        numbers.iter().filter_map(of).collect()
    }

    /// Ends the server and returns its log.
    fn log(mut self) -> String {
        self.process.kill().unwrap();
        let mut log = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ended = self.process.kill();
        self.process.wait().unwrap();
    }
}

/// Starts a server, ends it, and returns its first line.
fn announcement() -> Value {
    Server::start(&["server.log_level=error"], &[]).announced.clone()
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
        assert!(detail.contains("backend `cuda-mps` is not available: no MPS control daemon"), "{detail}");
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
        assert!(
            detail.starts_with("no NVIDIA driver") && detail.ends_with("models run on CPU cores"),
            "{detail}"
        );
        let announced = announcement();
        assert_eq!(announced["devices"][0]["backend"], "cpu-cores");
        assert_eq!(announced["ready"], true);
    });
}

#[test]
fn each_gpu_is_a_device_with_units_in_its_own_process() {
    let two = Shape { devices: 2, ..Shape::default() };
    staged("each_gpu_is_a_device_with_units_in_its_own_process", &Driver::Standin(two), || {
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
        // No engine here runs on a GPU. The model's reason says so, and the server is not ready.
        assert_eq!(announced["ready"], false);
        let reason = announced["models"][0]["reason"].as_str().unwrap();
        assert!(reason.contains("CUDA") || reason.contains("ONNX Runtime"), "{reason}");
    });
}

#[test]
fn gpus_have_gauges_of_what_they_do() {
    let two = Shape { devices: 2, ..Shape::default() };
    staged("gpus_have_gauges_of_what_they_do", &Driver::Standin(two), || {
        let server = Server::start(&["server.log_level=error"], &[]);
        let mut text = String::new();
        for line in [
            "tessera_gpu_sm_active{device=\"gpu1\"} 0.42",
            "tessera_gpu_sm_occupancy{device=\"gpu0\"} 0.185",
            "tessera_gpu_memory_bandwidth_utilisation{device=\"gpu1\"} 0.27",
            "tessera_gpu_utilisation{device=\"gpu0\"} 0.37",
            "tessera_gpu_memory_total_bytes{device=\"gpu1\"} 85899345920",
            "tessera_gpu_sm_clock_hertz{device=\"gpu0\"} 1755000000",
            "tessera_gpu_memory_clock_hertz{device=\"gpu1\"} 2619000000",
            "tessera_gpu_throttled{device=\"gpu0\",reason=\"sw_power_cap\"} 1",
        ] {
            // The gauges get their values one after the other.
            text = server.metrics(line);
        }
        assert!(text.contains("tessera_gpu_memory_used_bytes{device=\"gpu0\"} "), "{text}");
        assert!(text.contains("tessera_lane_busy_us_total{lane=\"0\"} 0"), "{text}");
    });
}

#[test]
fn without_the_management_library_one_line_says_so_and_nothing_is_shown() {
    let without = Driver::Without(Shape::default(), vec!["nvmlInit_v2".to_owned()]);
    staged("without_the_management_library_one_line_says_so_and_nothing_is_shown", &without, || {
        let server = Server::start(&["server.log_level=info"], &[]);
        let text = server.metrics("tessera_lane_busy_us_total");
        assert!(!text.contains("tessera_gpu_"), "{text}");
        assert_eq!(server.announced["devices"][0]["backend"], "cuda-green");
        let log = server.log();
        assert_eq!(log.matches("no metrics of GPUs").count(), 1, "{log}");
    });
}

/// A process with the name of the MPS control daemon, and the folder that refers to it.
struct Daemon {
    process: Child,
    folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-cuda-mps-control");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let process = Command::new(&program).arg("600").spawn().unwrap();
        let file = folder.path().join("nvidia-cuda-mps-control.pid");
        std::fs::write(file, process.id().to_string()).unwrap();
        Self { process, folder }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn under_mps_each_gpulet_is_a_process_with_its_share() {
    staged("under_mps_each_gpulet_is_a_process_with_its_share", &Driver::Standin(Shape::default()), || {
        let daemon = Daemon::start();
        let settings = ["server.log_level=error", "devices.gpu_backend=cuda-mps"];
        let variables = [("CUDA_MPS_PIPE_DIRECTORY", daemon.folder.path())];
        let server = Server::start(&settings, &variables);
        let device = &server.announced["devices"][0];
        assert_eq!((&device["backend"], &device["units"]), (&"cuda-mps".into(), &100.into()));
        assert_eq!(device["guarantees"]["compute"], "upper_bound");
        assert_eq!(device["guarantees"]["resize"], "new_process");
        assert_eq!(
            device["guarantees"]["fault_domain"], "device",
            "one client's fault ends all of the daemon's"
        );
        assert_eq!(server.workers_have("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), ["100"]);
        assert_eq!(server.workers_have("CUDA_DEVICE_MAX_CONNECTIONS"), ["32"]);
    });
}

#[test]
fn without_mps_no_process_has_a_share() {
    staged("without_mps_no_process_has_a_share", &Driver::Standin(Shape::default()), || {
        let server = Server::start(&["server.log_level=error"], &[]);
        assert_eq!(server.workers_have("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), [""; 0]);
        assert_eq!(server.workers_have("CUDA_DEVICE_MAX_CONNECTIONS"), ["32"]);
    });
}
