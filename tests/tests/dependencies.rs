//! Every dependency in a manifest is used, and Cargo.lock alone pins versions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;

/// Dependencies that only generated code uses.
const GENERATED: &[(&str, &str)] =
    &[("server", "prost"), ("server", "tonic-prost"), ("fleet-picker", "tonic-prost")];

/// Dependencies whose library has another name.
const LIBRARIES: &[(&str, &str)] = &[("md-5", "md5")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Appends the text of the crate's own Rust files; folders with another manifest are other crates.
fn read_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.join("Cargo.toml").exists() {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

fn names(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect()
}

#[test]
fn every_dependency_of_a_crate_occurs_in_its_code() {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let mut unused = Vec::new();
    for package in metadata.workspace_packages() {
        let mut text = String::new();
        read_sources(package.manifest_path.parent().unwrap().as_std_path(), &mut text);
        let names = names(&text);
        unused.extend(package.dependencies.iter().filter_map(|dependency| {
            let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
            let library = LIBRARIES.iter().find(|(package, _)| package == name);
            let library = library.map_or(name.replace('-', "_"), |(_, library)| (*library).to_owned());
            let used = names.contains(library.as_str())
                || GENERATED.contains(&(package.name.as_str(), name.as_str()));
            (!used).then(|| format!("{}: {name}", package.manifest_path))
        }));
    }
    assert!(unused.is_empty(), "remove these unused dependencies: {unused:#?}");
}

/// The lines `name = requirement` of `[workspace.dependencies]`.
fn shared() -> Vec<(String, String)> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let table = manifest.split("[workspace.dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(" = ").map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect()
}

#[test]
fn every_shared_dependency_is_used_by_a_crate() {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let packages = metadata.workspace_packages();
    let used: BTreeSet<_> =
        packages.iter().flat_map(|package| &package.dependencies).map(|one| one.name.as_str()).collect();
    let own: BTreeSet<_> = packages.iter().map(|package| package.name.as_str()).collect();
    let unused: Vec<_> =
        shared().into_iter().map(|(name, _)| name).filter(|name| !used.contains(name.as_str())).collect();
    let unused: Vec<_> = unused.iter().filter(|name| !own.contains(name.as_str())).collect();
    assert!(unused.is_empty(), "remove from [workspace.dependencies]: {unused:?}");
}

#[test]
fn only_pre_releases_are_pinned_to_one_version() {
    let pinned: Vec<_> = shared().into_iter().filter(|(_, value)| value.contains("\"=")).collect();
    let needless: Vec<_> = pinned.iter().filter(|(_, value)| !value.contains('-')).collect();
    assert!(needless.is_empty(), "Cargo.lock pins versions; remove `=` from: {needless:?}");
}
