//! No import circles between the modules of a crate.
//!
//! Every file is a module. A module imports another when one of its paths names an item that the other defines; a
//! re-export counts as the file that defines the item. The rule: **siblings form no circle**, where each sibling stands
//! for all files inside it. A module and its ancestors may use each other. Test code is left out.
//!
//! `cargo test --release -p e2e --test modules -- --nocapture` prints every circle with the items that tie it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "modules are numbered by position")]

mod module_graph;

use std::path::{Path, PathBuf};

use cargo_metadata::{MetadataCommand, TargetKind};
use module_graph::Modules;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn siblings_form_no_import_circle() {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let mut circular = Vec::new();
    for package in metadata.workspace_packages() {
        for target in &package.targets {
            let built = |kind: &TargetKind| matches!(kind, TargetKind::Lib | TargetKind::Bin);
            if !target.kind.iter().any(built) {
                continue;
            }
            let circles = Modules::read(target.src_path.as_std_path()).circles();
            for circle in &circles {
                println!("{} ({}): a circle\n{circle}", package.name, target.kind[0]);
            }
            if !circles.is_empty() {
                circular.push(package.name.to_string());
            }
        }
    }
    assert!(circular.is_empty(), "import circles in {}; see above", circular.join(", "));
}
