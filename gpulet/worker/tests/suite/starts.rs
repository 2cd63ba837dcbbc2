//! Workers that do not start, and servers that are gone.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use gpulet::{Device, FaultDomain, PartitionSpec};
use gpulet_worker::{Limits, ProcessDevice, WorkerCommand, WorkerScope};

use crate::support::{Losses, command, cores, device, echo, echoes, limits, load};

const SPEC: PartitionSpec = PartitionSpec { lane: 0, first_unit: 0, units: 1 };

fn refused(description: &str, command: WorkerCommand, limits: Limits) -> String {
    let device = device(WorkerScope::Device, description, command, limits);
    let (losses, watch) = Losses::new();
    let said = device.open(&SPEC, watch).err().unwrap().to_string();
    assert!(losses.none_yet(), "what was never open is not lost");
    assert!(device.open(&SPEC, Losses::new().1).is_err(), "and it is tried again");
    said
}

#[test]
fn a_worker_that_does_not_start_is_told_by_open() {
    for (description, part) in [
        ("exit", "of device `cpu0`: exited with status 7"),
        ("refuse", "of device `cpu0`: the device is away"),
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
    let said = refused("", WorkerCommand { arguments: Vec::new(), ..command() }, limits());
    assert!(said.contains("no message: "), "{said}");
    let said = refused("", WorkerCommand { program: "/bin/true".into(), ..command() }, limits());
    assert!(said.ends_with("exited with status 0"), "{said}");
}

#[test]
fn a_process_of_one_gpulet_is_told_its_units() {
    let told = |scope, units| {
        let command = WorkerCommand { units_variable: Some("WORKER_TEST_UNITS".into()), ..command() };
        let spec = PartitionSpec { units, ..SPEC };
        let device = device(scope, "say units", command, limits());
        device.open(&spec, Losses::new().1).err().unwrap().to_string()
    };
    for units in [1, 40, 100] {
        let said = told(WorkerScope::Gpulet, units);
        assert!(said.ends_with(&format!("units: {units}")), "{said}");
    }
    let said = told(WorkerScope::Device, 40);
    assert!(said.ends_with("units: none"), "a process of many gpulets has no share of one: {said}");
}

#[test]
fn a_fault_domain_that_is_the_devices_stays_so() {
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
    assert_eq!(said, format!("device `cpu0`: the worker's has {units} units: expected {}", units + 100));
}

#[test]
fn a_worker_says_what_device_it_has() {
    for scope in [WorkerScope::Gpulet, WorkerScope::Device] {
        let ask = |description: &str| {
            ProcessDevice::ask("cpu7", scope, command(), description.to_owned(), limits())
        };
        let asked = ask("").unwrap();
        let mut expected = device(scope, "", command(), limits()).info().clone();
        expected.name = "cpu7".to_owned();
        assert_eq!(asked.info(), &expected);
        let partition = asked.open(&SPEC, Losses::new().1).unwrap();
        echoes(load(&partition, &echo("echo", "")).as_mut(), 1, 4);
        let said = ask("refuse").err().unwrap().to_string();
        assert!(said.ends_with("of device `cpu7`: the device is away"), "{said}");
    }
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let limits = Limits { close: Duration::ZERO, ..limits() };
    let info = cores().info().clone();
    let made = ProcessDevice::new(info, WorkerScope::Gpulet, command(), String::new(), limits);
    let said = made.err().unwrap().to_string();
    assert_eq!(said, "device `cpu0`: close: expected 10ms to 86400s, got 0ns");
}

#[test]
fn a_worker_is_gone_when_its_server_is() {
    let mut server = Command::new(command().program)
        .arg("server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    server.kill().unwrap();
    server.wait().unwrap();
    // The worker has the server's standard error: its end comes when both are gone.
    let mut errors = String::new();
    server.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}

#[test]
fn a_worker_that_nobody_talks_to_says_what_it_expects() {
    let run = Command::new(command().program).arg("worker").stdin(Stdio::null()).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.starts_with("a worker is started by a server"), "{said}");
}
