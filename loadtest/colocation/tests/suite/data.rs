//! Public data that is not part of this project: tests read it from the folder that `TESSERA_DATA` names, and are skipped without it.

use std::path::{Path, PathBuf};

/// The folder, or none and a line that says so.
pub fn folder() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "only this test asks where the data is")]
    let folder = std::env::var_os("TESSERA_DATA").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: TESSERA_DATA is not set");
    }
    folder
}

pub fn read(path: &Path) -> String {
    #[expect(clippy::disallowed_methods, reason = "the test reads what the crate must not")]
    std::fs::read_to_string(path).unwrap()
}

/// A kernel list of Orion's.
pub fn program(folder: &Path, name: &str) -> colocation::kernel::Program {
    colocation::orion_data::program(name, &read(&folder.join(format!("orion/model_kernels/{name}.csv"))))
        .unwrap()
}
