//! The setting `split` of a pipeline, to copy into a file.

use toml::{Table, Value};

/// Shares are printed in steps of this part of the objective.
const STEP: f64 = 1e-4;

/// Stages with their shares as an inline table. Shares are rounded down, so that those along a path add up to no more than before.
pub fn split_setting<'a>(shares: impl Iterator<Item = (&'a str, f64)>) -> String {
    // Divided by a whole number, so that few digits are printed.
    let printed = |share: f64| (share / STEP).floor().max(1.0) / (1.0 / STEP).round();
    let table: Table =
        shares.map(|(stage, share)| (stage.to_owned(), Value::Float(printed(share)))).collect();
    Value::Table(table).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_path_add_up_to_at_most_all() {
        let text = split_setting([("det", 0.333_35), ("b.c", 0.666_65)].into_iter());
        assert_eq!(text, "{ \"b.c\" = 0.6666, det = 0.3333 }");
    }
}
