//! Checks that paths and links in the documents exist.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All tracked Markdown files, relative to the root.
fn documents() -> Vec<String> {
    let listed = Command::new("git").args(["ls-files", "*.md"]).current_dir(root()).output().unwrap();
    assert!(listed.status.success(), "git ls-files failed");
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The text without fenced code blocks.
fn prose(document: &str) -> String {
    let text = fs::read_to_string(root().join(document)).unwrap();
    text.split("```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// Anchors of the headings, as code hosts derive them.
fn anchors(document: &str) -> BTreeSet<String> {
    let text = prose(document);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut broken = Vec::new();
    for document in documents() {
        for part in prose(&document).split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.starts_with("http") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = Path::new(&document).parent().unwrap();
            let file = if path.is_empty() { PathBuf::from(&document) } else { folder.join(path) };
            let found = root().join(&file).canonicalize();
            let has_anchor = |found: &Path| {
                let inside = found.strip_prefix(root().canonicalize().unwrap()).unwrap();
                anchors(inside.to_str().unwrap()).contains(anchor)
            };
            if found.is_err() || !anchor.is_empty() && !has_anchor(&found.unwrap()) {
                broken.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {broken:#?}");
}

/// Paths between backticks that start with a folder of the root; `{a,b}` and `*` stand for several.
fn paths(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2).filter(|one| !one.contains([' ', '\n', '<', '$']));
    let folders: BTreeSet<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "target" && name != ".git")
        .collect();
    quoted
        .filter(|one| one.split_once('/').is_some_and(|(first, _)| folders.contains(first)))
        .map(str::to_owned)
        .collect()
}

fn expanded(path: &str) -> Vec<String> {
    let braces = path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match braces {
        Some((before, (names, after))) => {
            names.split(',').map(|name| format!("{before}{name}{after}")).collect()
        }
        None => vec![path.to_owned()],
    }
}

fn exists(path: &str) -> bool {
    match path.split_once('*') {
        Some((before, after)) => {
            let (folder, start) = before.rsplit_once('/').unwrap();
            let entries = fs::read_dir(root().join(folder)).into_iter().flatten();
            let mut names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
            names.any(|name| name.starts_with(start) && name.ends_with(after))
        }
        // A module may be a file or a folder.
        None => root().join(path).exists() || root().join(format!("{path}.rs")).exists(),
    }
}

#[test]
fn paths_in_the_architecture_and_the_guides_exist() {
    let mut missing = Vec::new();
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/gpu.md", "docs/partition.md"] {
        let named = paths(&prose(document));
        assert!(
            document.starts_with("docs") || document == "README.md" || !named.is_empty(),
            "{document} names no path"
        );
        let all = named.iter().flat_map(|path| expanded(path));
        missing.extend(all.filter(|path| !exists(path)).map(|path| format!("{document}: {path}")));
    }
    assert!(missing.is_empty(), "paths that do not exist: {missing:#?}");
}
