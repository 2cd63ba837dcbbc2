//! The files of `deploy/crds` are those that the code generates.

use std::path::Path;

use fleet_kubernetes::manifests;

#[test]
fn the_files_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/crds");
    let definitions = manifests::definitions().unwrap();
    for manifest in &definitions {
        let found = std::fs::read_to_string(folder.join(&manifest.file)).unwrap_or_default();
        let write = "cargo run -p fleet-cli -- crds --out deploy/crds";
        assert!(found == manifest.text, "deploy/crds/{} is not current: {write}", manifest.file);
    }
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), definitions.len());
}
