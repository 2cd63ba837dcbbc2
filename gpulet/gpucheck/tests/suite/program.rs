//! The program as a user starts it: lines and exit codes.

use cuda_standin::{Driver, Shape, staged};
use gpucheck::check::Check;

use crate::stage::{fact, facts, program, stderr};

#[test]
fn a_machine_without_a_gpu_has_one_line_and_an_exit_code() {
    staged("program::a_machine_without_a_gpu_has_one_line_and_an_exit_code", &Driver::Broken, || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["--all", "--out", "lines.jsonl"]);
        assert_eq!(output.status.code(), Some(3));
        let why = "no NVIDIA driver: libcuda.so.1 was not found (is the driver installed, and visible in this container?)";
        assert_eq!(stderr(&output), format!("gpucheck: {why}\n"));
        let facts = facts(&output.stdout);
        assert_eq!((facts.len(), facts[0].ok, &facts[0].detail), (1, Some(false), &why.into()));
        assert_eq!(std::fs::read(folder.path().join("lines.jsonl")).unwrap(), output.stdout);
    });
}

#[test]
fn a_probe_reports_the_gpu_and_checks_nothing() {
    let test = "program::a_probe_reports_the_gpu_and_checks_nothing";
    staged(test, &Driver::Standin(Shape::default()), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["--probe"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let facts = facts(&output.stdout);
        assert_eq!((facts.len(), facts[0].fact.as_str()), (1, "gpucheck.device"));
    });
}

#[test]
fn a_wrong_command_line_has_an_exit_code() {
    staged("program::a_wrong_command_line_has_an_exit_code", &Driver::Standin(Shape::default()), || {
        let folder = tempfile::tempdir().unwrap();
        for (words, why) in [
            (&["speed"][..], "speed"),
            (&[], "required"),
            (&["facts", "--device", "7"], "gpucheck: --device: expected a number below 1, got `7`"),
            (&["facts", "--out", "no/such/folder"], "expected a file that can be written"),
        ] {
            let output = program(folder.path(), words);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(why), "{words:?}: {}", stderr(&output));
        }
    });
}

#[test]
fn facts_of_a_healthy_gpu_are_as_required() {
    let shape = Shape { devices: 2, ..Shape::default() };
    staged("program::facts_of_a_healthy_gpu_are_as_required", &Driver::Standin(shape), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["facts", "--device", "1"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let facts = facts(&output.stdout);
        assert_eq!(facts[0].value, "Stand-in GPU");
        assert!(facts[0].detail["uuid"].as_str().unwrap().ends_with("01"), "the second GPU");
        assert_eq!(fact(&facts, "facts.connections").value, "32");
        assert_eq!(fact(&facts, "facts.ended").ok, Some(true));
    });
}

#[test]
fn a_failed_check_has_an_exit_code() {
    let shape = Shape { greens_max: 20, ..Shape::default() };
    staged("program::a_failed_check_has_an_exit_code", &Driver::Standin(shape), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["facts"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("1 not as required"), "{}", stderr(&output));
    });
}

#[test]
fn a_fault_ends_only_its_own_process() {
    staged("program::a_fault_ends_only_its_own_process", &Driver::Standin(Shape::default()), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["faults"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let facts = facts(&output.stdout);
        assert_eq!(fact(&facts, "faults.exit_code").value, 4);
        assert_eq!(fact(&facts, "faults.gpulets_told").value, 2);
        assert_eq!(fact(&facts, "faults.other_process_serves_on").value, true);
        assert!(fact(&facts, "faults.own_batch_is_lost").detail.as_str().unwrap().contains("gpu0 failed"));
        for operator in ["gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"] {
            let index = fact(&facts, &format!("faults.index_{operator}"));
            assert!(
                index.ok.is_none() && index.detail.as_str().unwrap().contains("ONNX Runtime"),
                "{index:?}"
            );
        }
        assert!(fact(&facts, "faults.restart").value.as_f64().unwrap() > 0.0);
    });
}

#[test]
fn all_checks_end() {
    staged("program::all_checks_end", &Driver::Standin(Shape::default()), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["--all"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
        let facts = facts(&output.stdout);
        for check in Check::ALL {
            let ended = fact(&facts, &format!("{}.ended", check.name()));
            assert_eq!(ended.ok, Some(true), "{ended:?}\n{}", stderr(&output));
        }
        for asked in ["libraries.models", "sharing.second_session", "profile.models", "mix.capacity"] {
            let skipped = fact(&facts, asked);
            assert_eq!(skipped.ok, None);
            assert!(!skipped.detail.as_str().unwrap().contains('\n'), "one line: {skipped:?}");
        }
        assert!(facts.iter().all(|fact| fact.section.starts_with("gpu.md ")));
    });
}
