//! Public data that is not part of this project: tests read it from the folder that `TESSERA_DATA` names, and are skipped without it.

use std::path::PathBuf;

use model_parallel::profile::ModelProfile;

/// Weights of bert-1.3b in fp16: 1.313 billion parameters.
pub const BERT_1_3B_BYTES: u64 = 2_626_000_000;

/// Text of a file of AlpaServe's results; otherwise none and a line that says so.
pub fn alpaserve(file: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "only this test asks where the data is")]
    let folder = std::env::var_os("TESSERA_DATA").map(PathBuf::from);
    let Some(folder) = folder else {
        println!("skipped: TESSERA_DATA is not set");
        return None;
    };
    let path = folder.join("alpaserve").join(file);
    #[expect(clippy::disallowed_methods, reason = "the test reads what the crate must not")]
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        println!("skipped: {} is missing", path.display());
    }
    text
}

/// The measured profile of bert-1.3b.
pub fn bert() -> Option<ModelProfile> {
    let text = alpaserve("bert_1.3b_profile.csv")?;
    Some(ModelProfile::parse("bert-1.3b", &text, BERT_1_3B_BYTES).unwrap())
}
