//! Repositories on disk, good and hostile.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::onnx::fixture::{D, matmul};
use crate::{Format, LoadOptions, Loader, ModelName, Version};

fn write(root: &Path, inner: &str, content: impl AsRef<[u8]>) {
    let path = root.join(inner);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn name(text: &str) -> ModelName {
    ModelName::new(text).unwrap()
}

fn model() -> Vec<u8> {
    matmul(D::S("batch")).bytes()
}

#[test]
fn a_scan_finds_models_and_says_what_it_left_out() {
    let root = tempfile::tempdir().unwrap();
    for inner in [
        "a/1/model.onnx",
        "a/10/model.onnx",
        "a/2/model.onnx",
        "b.onnx",
        "a/.3/model.onnx",
        "a/4.tmp/model.onnx",
    ] {
        write(root.path(), inner, model());
    }
    for inner in [
        "a/07/model.onnx",
        "a/notes.txt",
        "readme.md",
        ".git/config",
        "half.tmp/1/model.onnx",
        "bad name/1/x",
    ] {
        write(root.path(), inner, "x");
    }
    write(root.path(), "b/1/model.onnx", model());
    std::fs::create_dir(root.path().join("empty")).unwrap();
    let repository = Repository::open(root.path()).unwrap();
    let snapshot = repository.scan().unwrap();
    assert_found_one_by_one(&repository, &snapshot);
    let found: Vec<_> =
        snapshot.models.iter().map(|(name, found)| (name.as_str(), found.versions.clone())).collect();
    let versions = |numbers: &[u64]| numbers.iter().map(|&number| Version(number)).collect::<Vec<_>>();
    assert_eq!(found, [("a", versions(&[1, 2, 10])), ("b", versions(&[1])), ("empty", vec![])]);
    let ignored: Vec<_> = snapshot.ignored.iter().map(|ignored| ignored.entry.as_str()).collect();
    assert_eq!(ignored, ["a/07", "b.onnx", "bad name", "readme.md"]);
    assert!(!snapshot.models[&name("b")].single_file, "the folder is taken");
}

/// A model is found alone as among the others, and other entries are not.
fn assert_found_one_by_one(repository: &Repository, snapshot: &Snapshot) {
    for (name, found) in &snapshot.models {
        assert_eq!(repository.find(name).as_ref(), Some(found), "{name}");
    }
    for ignored in &snapshot.ignored {
        let Ok(name) = ModelName::new(&ignored.entry) else { continue };
        assert_eq!(repository.find(&name), snapshot.models.get(&name).cloned(), "{name}");
    }
    assert_eq!(repository.find(&ModelName::new("nowhere").unwrap()), None);
}

#[test]
fn links_that_leave_the_repository_are_refused() {
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "model/1/model.onnx", model());
    let root = tempfile::tempdir().unwrap();
    symlink(outside.path().join("model"), root.path().join("all")).unwrap();
    std::fs::create_dir_all(root.path().join("one")).unwrap();
    symlink(outside.path().join("model/1"), root.path().join("one/1")).unwrap();
    std::fs::create_dir_all(root.path().join("file/1")).unwrap();
    symlink(outside.path().join("model/1/model.onnx"), root.path().join("file/1/model.onnx")).unwrap();
    symlink(outside.path().join("model/1/model.onnx"), root.path().join("single.onnx")).unwrap();
    write(root.path(), "inside/1/model.onnx", model());
    symlink("inside", root.path().join("alias")).unwrap();
    let repository = Repository::open(root.path()).unwrap();
    let snapshot = repository.scan().unwrap();
    assert_found_one_by_one(&repository, &snapshot);
    let names: Vec<_> = snapshot.models.keys().map(ModelName::as_str).collect();
    assert_eq!(names, ["alias", "file", "inside", "one"]);
    assert!(snapshot.models[&name("one")].versions.is_empty());
    for model in ["all", "one", "file", "single"] {
        let error = repository.read(&name(model), Version(1), None).unwrap_err().to_string();
        assert!(error.contains("link that leaves the repository"), "{error}");
    }
    for model in ["alias", "inside"] {
        assert!(repository.read(&name(model), Version(1), None).is_ok(), "{model}");
    }
}

#[test]
fn files_are_read_once_and_named_by_their_content() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a/1/model.onnx", model());
    write(root.path(), "a/2/model.onnx", model());
    write(root.path(), "b.onnx", model());
    write(
        root.path(),
        "fake/1/model.toml",
        "inputs = []\noutputs = [{ name = \"y\", datatype = \"FP32\", dims = [1] }]",
    );
    let repository = Repository::open(root.path()).unwrap();
    let first = repository.read(&name("a"), Version(1), None).unwrap();
    let single = repository.read(&name("b"), Version(1), None).unwrap();
    assert_eq!((first.hash, first.format), (single.hash, Format::Onnx));
    assert!(first.folder().unwrap().ends_with("a/1") && single.folder().is_none());
    std::fs::remove_dir_all(root.path().join("a")).unwrap();
    assert!(Loader::without_ort().load(&first, &LoadOptions::default()).is_ok(), "loads from memory");
    let fake = repository.read(&name("fake"), Version(1), None).unwrap();
    let session = Loader::without_ort().load(&fake, &LoadOptions::default()).unwrap();
    assert_eq!(session.engine(), "synthetic");
}

#[test]
fn what_is_not_a_file_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("a/1/model.onnx")).unwrap();
    std::fs::create_dir_all(root.path().join("b/1")).unwrap();
    std::fs::create_dir_all(root.path().join("pipe/1")).unwrap();
    let pipe = root.path().join("pipe/1/model.onnx");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let repository = Repository::open(root.path()).unwrap();
    let error =
        |model: &str, version| repository.read(&name(model), Version(version), None).unwrap_err().to_string();
    assert!(error("a", 1).contains("not a regular file"));
    assert!(error("pipe", 1).contains("not a regular file"));
    assert!(error("b", 1).contains("b/1/model.onnx: No such file"));
    assert!(error("b", 2).contains("version 2 is not in the repository"));
    assert!(Repository::open(&root.path().join("none")).is_err());
    assert!(Repository::open(&pipe).is_err());
}

#[test]
fn configuration_and_labels_come_from_the_models_folder() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a/1/net.onnx", model());
    write(root.path(), "a/labels.txt", "cat\ndog\n");
    write(
        root.path(),
        "a/config.pbtxt",
        "default_model_filename: \"net.onnx\" output { name: \"y\" data_type: TYPE_FP32 dims: [2] label_filename: \"labels.txt\" }",
    );
    write(root.path(), "b/1/model.onnx", model());
    let repository = Repository::open(root.path()).unwrap();
    let config = repository.config(&name("a")).unwrap().unwrap();
    assert!(repository.read(&name("a"), Version(1), Some(&config)).is_ok());
    assert_eq!(repository.labels(&name("a"), "labels.txt").unwrap(), ["cat", "dog"]);
    assert!(repository.labels(&name("a"), "none.txt").is_err());
    assert_eq!(repository.config(&name("b")).unwrap(), None);
    symlink("/nowhere", root.path().join("b/config.pbtxt")).unwrap();
    assert!(repository.config(&name("b")).is_err(), "a dangling link is not the absence of a file");
}
