//! Makes the study of predicted batch times: `cargo run --release -p estimator --example evaluation [PAGE]`.
//!
//! Writes `docs/estimator.md`, or another page. The data sets are read from the folder that `TESSERA_DATA` names, by default `shared/data`
//! next to the project; they have no licence and are not part of it.

#![expect(
    clippy::disallowed_methods,
    reason = "the program around the pure crate reads and writes its files"
)]

mod baselines;
mod data;
mod families;
mod known;
mod memory;
mod networks;
mod orders;
mod page;
mod plans;
mod random;
mod unseen;

use std::path::{Path, PathBuf};

use data::DATA_SETS;
use known::{LeaveOut, LeftOut};
use orders::Kind;
use page::Results;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::env::args().nth(1).map_or_else(|| project.join("docs/estimator.md"), PathBuf::from);
    let folder =
        std::env::var_os("TESSERA_DATA").map_or_else(|| project.join("../shared/data"), PathBuf::from);
    let mut all = Vec::new();
    for data in &DATA_SETS {
        let path = data.path(&project, &folder);
        let text =
            std::fs::read_to_string(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
        let models = data.read(&text)?;
        let by_model = LeaveOut::new(&models, LeftOut::Model)?;
        let by_family = LeaveOut::new(&models, LeftOut::Family)?;
        let unseen = [unseen::study(&by_model)?, unseen::study(&by_family)?];
        let known = if data.is_own() { &by_family } else { &by_model };
        let efforts = [orders::study(known, Kind::EachShare)?, orders::study(known, Kind::Rate)?];
        let (plans, memory) = (plans::study(known)?, memory::study(known));
        let within_planned = plans::within_planned(known)?;
        drop((by_model, by_family));
        all.push(Results { data, models, unseen, efforts, plans, within_planned, memory });
    }
    std::fs::write(&page, page::markdown(&all))?;
    Ok(())
}
