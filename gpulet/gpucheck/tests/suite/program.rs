//! The program as a person starts it: lines, exit codes, time.

use std::time::Duration;

use cuda_standin::{Driver, Shape, staged};
use gpucheck::question::Question;

use crate::stage::{fact, facts, program, said};

#[test]
fn a_machine_without_a_gpu_is_one_line_and_its_own_code() {
    staged("program::a_machine_without_a_gpu_is_one_line_and_its_own_code", &Driver::Broken, || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["--all", "--out", "lines.jsonl"]);
        assert_eq!(output.status.code(), Some(3));
        let why = "no NVIDIA driver: libcuda.so.1 was not found (is the driver installed, and visible in this container?)";
        assert_eq!(said(&output), format!("gpucheck: {why}\n"));
        let facts = facts(&output.stdout);
        assert_eq!((facts.len(), facts[0].ok, &facts[0].detail), (1, Some(false), &why.into()));
        assert_eq!(std::fs::read(folder.path().join("lines.jsonl")).unwrap(), output.stdout);
    });
}

#[test]
fn a_probe_says_which_gpu_there_is_and_asks_nothing() {
    let test = "program::a_probe_says_which_gpu_there_is_and_asks_nothing";
    staged(test, &Driver::Standin(Shape::default()), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["--probe"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let facts = facts(&output.stdout);
        assert_eq!((facts.len(), facts[0].fact.as_str()), (1, "gpucheck.device"));
    });
}

#[test]
fn a_misuse_has_its_own_code() {
    staged("program::a_misuse_has_its_own_code", &Driver::Standin(Shape::default()), || {
        let folder = tempfile::tempdir().unwrap();
        for (words, why) in [
            (&["speed"][..], "speed"),
            (&[], "required"),
            (&["facts", "--device", "7"], "gpucheck: --device 7: expected a number below 1"),
            (&["facts", "--out", "no/such/folder"], "expected a file that can be written"),
        ] {
            let output = program(folder.path(), words);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output));
            assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
        }
    });
}

#[test]
fn facts_of_a_good_gpu_are_all_right() {
    let shape = Shape { devices: 2, ..Shape::default() };
    staged("program::facts_of_a_good_gpu_are_all_right", &Driver::Standin(shape), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["facts", "--device", "1"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let facts = facts(&output.stdout);
        assert_eq!(facts[0].value, "Stand-in GPU");
        assert!(facts[0].detail["uuid"].as_str().unwrap().ends_with("01"), "the second GPU");
        assert_eq!(fact(&facts, "facts.connections").value, "32");
        assert_eq!(fact(&facts, "facts.ended").ok, Some(true));
    });
}

#[test]
fn a_check_that_fails_has_its_own_code() {
    let shape = Shape { greens_max: 20, ..Shape::default() };
    staged("program::a_check_that_fails_has_its_own_code", &Driver::Standin(shape), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["facts"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains("1 not as they must be"), "{}", said(&output));
    });
}

#[test]
fn a_fault_is_suffered_by_a_process_of_its_own() {
    staged(
        "program::a_fault_is_suffered_by_a_process_of_its_own",
        &Driver::Standin(Shape::default()),
        || {
            let folder = tempfile::tempdir().unwrap();
            let output = program(folder.path(), &["faults"]);
            assert_eq!(output.status.code(), Some(0), "{}", said(&output));
            let facts = facts(&output.stdout);
            assert_eq!(fact(&facts, "faults.exit_code").value, 4);
            assert_eq!(fact(&facts, "faults.gpulets_told").value, 2);
            assert_eq!(fact(&facts, "faults.other_process_serves_on").value, true);
            assert!(
                fact(&facts, "faults.own_batch_is_lost").detail.as_str().unwrap().contains("gpu0 is lost")
            );
            let index = fact(&facts, "faults.index_beyond_a_table");
            assert!(
                index.ok.is_none() && index.detail.as_str().unwrap().contains("ONNX Runtime"),
                "{index:?}"
            );
            assert!(fact(&facts, "faults.restart").value.as_f64().unwrap() > 0.0);
        },
    );
}

#[test]
fn all_questions_are_asked_in_their_time() {
    staged("program::all_questions_are_asked_in_their_time", &Driver::Standin(Shape::default()), || {
        let folder = tempfile::tempdir().unwrap();
        let output = program(folder.path(), &["--all"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", said(&output));
        let facts = facts(&output.stdout);
        let mut total = 0.0;
        for question in Question::ALL {
            let ended = fact(&facts, &format!("{}.ended", question.word()));
            assert_eq!(ended.ok, Some(true), "{ended:?}\n{}", said(&output));
            let took = ended.value.as_f64().unwrap();
            assert!(took <= question.time().as_secs_f64() + 1.0, "{ended:?}");
            total += took;
        }
        assert!(total < Duration::from_secs(480).as_secs_f64());
        for asked in ["libraries.models", "sharing.second_session", "profile.models", "mix.capacity"] {
            let skipped = fact(&facts, asked);
            assert_eq!(skipped.ok, None);
            assert!(!skipped.detail.as_str().unwrap().contains('\n'), "one line: {skipped:?}");
        }
        assert!(facts.iter().all(|fact| fact.question.starts_with("gpu.md ")));
    });
}
