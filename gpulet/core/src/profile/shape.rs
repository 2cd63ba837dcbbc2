//! Shapes of the inputs that a profile was measured with. Only models whose inputs have free dimensions have them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest number of shapes in a profile.
pub const SHAPES_MAX: usize = 16;

/// One shape of a model's inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowShape {
    /// Extents of one row by input. Inputs of a fixed shape are left out.
    pub inputs: BTreeMap<String, Vec<u64>>,
    /// Share of the model's requests that had this shape, from 0 to 1; `None` if no traffic was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Whether the profiler chose the free extents, because no shape was named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

impl RowShape {
    /// Whether requests of these shapes are measured by this one. Inputs that only one of them names do not count.
    pub fn fits(&self, inputs: &BTreeMap<String, Vec<u64>>) -> bool {
        self.inputs.iter().all(|(name, own)| inputs.get(name).is_none_or(|extents| extents == own))
    }

    /// Each input with its extents, such as `image=3x224x224`.
    pub fn words(&self) -> impl Iterator<Item = String> {
        self.inputs.iter().map(|(name, row)| format!("{name}={}", extents(row)))
    }
}

impl fmt::Display for RowShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().collect::<Vec<_>>().join(" "))
    }
}

/// Several shapes as text, with their shares of the traffic.
pub fn listed(shapes: &[RowShape]) -> String {
    let word = |shape: &RowShape| match shape.share {
        Some(share) => format!("{shape} ({:.0} % of the requests)", 100.0 * share),
        None if shape.assumed => format!("{shape} (assumed)"),
        None => shape.to_string(),
    };
    let words: Vec<String> = shapes.iter().map(word).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// `3x224x224`.
fn extents(row: &[u64]) -> String {
    let words: Vec<String> = row.iter().map(u64::to_string).collect();
    words.join("x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_told_as_the_flags_take_them() {
        let inputs = BTreeMap::from([("ids".to_owned(), vec![128]), ("image".to_owned(), vec![3, 48, 192])]);
        let shape = RowShape { inputs: inputs.clone(), share: Some(0.834), assumed: false };
        assert_eq!(shape.to_string(), "ids=128 image=3x48x192");
        let assumed = RowShape { share: None, assumed: true, ..shape.clone() };
        let said = listed(&[shape.clone(), assumed]);
        assert_eq!(said, "ids=128 image=3x48x192 (83 % of the requests), ids=128 image=3x48x192 (assumed)");
        assert_eq!(listed(&[]), "none");
        assert!(shape.fits(&inputs) && shape.fits(&BTreeMap::from([("ids".to_owned(), vec![128])])));
        assert!(!shape.fits(&BTreeMap::from([("ids".to_owned(), vec![64])])));
    }
}
