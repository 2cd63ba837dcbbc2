//! Workers that do not start, and servers that die.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use gpulet::{Device, FaultDomain, PartitionSpec};
use gpulet_worker::{Limits, ProcessDevice, WorkerCommand, WorkerScope};

use crate::process::Role;
use crate::support::{Losses, command, command_of, cores, device, limits};

const SPEC: PartitionSpec = PartitionSpec { lane: 0, first_unit: 0, units: 1 };

fn refused(description: &str, command: WorkerCommand, limits: Limits) -> String {
    let device = device(WorkerScope::Device, description, command, limits);
    let (losses, watch) = Losses::new();
    let error = device.open(&SPEC, watch).err().unwrap().to_string();
    assert!(losses.none_yet(), "a gpulet that was never open is not reported");
    assert!(device.open(&SPEC, Losses::new().1).is_err(), "each open starts a worker");
    error
}

#[test]
fn open_says_why_a_worker_does_not_start() {
    for (description, part) in [
        ("exit", "of device `cpu0`: exited with status 7"),
        ("refuse", "of device `cpu0`: the device is missing"),
    ] {
        let said = refused(description, command(), limits());
        assert!(said.starts_with("worker ") && said.ends_with(part), "{said}");
    }
    let hurried = Limits { start: Duration::from_millis(200), ..limits() };
    let said = refused("hang", command(), hurried);
    assert!(said.ends_with("no answer for 200 ms to its start"), "{said}");
    let said = refused("", WorkerCommand { program: "/nowhere/at/all".into(), ..command() }, limits());
    assert!(
        said.starts_with("device `cpu0`: worker: cannot be started: /nowhere/at/all: No such file"),
        "{said}"
    );
    let said = refused("", command_of(Role::Stranger), limits());
    assert!(said.contains("invalid message: "), "{said}");
    let said = refused("", WorkerCommand { program: "/bin/true".into(), ..command() }, limits());
    assert!(said.ends_with("exited with status 0"), "{said}");
}

#[test]
fn a_process_of_one_gpulet_gets_its_units_in_a_variable() {
    let units_of = |scope, units| {
        let command = WorkerCommand { units_variable: Some("WORKER_TEST_UNITS".into()), ..command() };
        let spec = PartitionSpec { units, ..SPEC };
        let device = device(scope, "say units", command, limits());
        device.open(&spec, Losses::new().1).err().unwrap().to_string()
    };
    for units in [1, 40, 100] {
        let said = units_of(WorkerScope::Gpulet, units);
        assert!(said.ends_with(&format!("units: {units}")), "{said}");
    }
    let said = units_of(WorkerScope::Device, 40);
    assert!(said.ends_with("units: none"), "a shared process has no single share: {said}");
}

#[test]
fn a_fault_domain_of_the_whole_device_is_kept() {
    let mut info = cores().info().clone();
    let domain = |info| {
        let made = ProcessDevice::new(info, WorkerScope::Gpulet, command(), String::new(), limits());
        made.unwrap().info().guarantees.fault_domain
    };
    assert_eq!(domain(info.clone()), FaultDomain::Gpulet);
    info.guarantees.fault_domain = FaultDomain::Device;
    assert_eq!(domain(info), FaultDomain::Device);
}

#[test]
fn a_worker_with_another_device_is_refused() {
    let mut info = cores().info().clone();
    info.units += 100;
    let device = ProcessDevice::new(info, WorkerScope::Gpulet, command(), String::new(), limits()).unwrap();
    let said = device.open(&SPEC, Losses::new().1).err().unwrap().to_string();
    let units = cores().info().units;
    assert_eq!(said, format!("device `cpu0`: expected {} units, the worker's has {units}", units + 100));
}

#[test]
fn invalid_limits_are_refused() {
    let limits = Limits { close: Duration::ZERO, ..limits() };
    let info = cores().info().clone();
    let made = ProcessDevice::new(info, WorkerScope::Gpulet, command(), String::new(), limits);
    let said = made.err().unwrap().to_string();
    assert_eq!(said, "device `cpu0`: `close`: expected 10ms to 86400s, got `0ns`");
}

#[test]
fn a_worker_ends_when_its_server_dies() {
    let mut server = Command::new(command().program)
        .args(Role::ARGUMENTS)
        .envs([Role::Server.variable()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(stdout.any(|line| line.unwrap().ends_with("ready")));
    server.kill().unwrap();
    server.wait().unwrap();
    // The worker inherited the server's standard error, which ends when both processes have ended.
    let mut errors = String::new();
    server.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}

#[test]
fn a_worker_without_a_server_says_how_it_is_started() {
    let run = Command::new(command().program)
        .args(Role::ARGUMENTS)
        .envs([Role::Worker.variable()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(2));
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.starts_with("a worker is started by a server"), "{said}");
}
