//! What graphs compute: each tensor is a number made of everything that it depends on.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use model_split::{Description, Stage};

pub type Values = BTreeMap<String, u64>;

/// Runs a stage on what it gets and nothing else. Panics if a node reads something that is not there.
pub fn run(whole: &Description, stage: &Stage, given: &Values) -> Values {
    let mut values: Values = stage.inputs.iter().map(|name| (name.clone(), given[name])).collect();
    values.extend(stage.constants.iter().map(|name| (name.clone(), hash(("constant", name)))));
    for &index in &stage.nodes {
        let node = &whole.nodes[index];
        let reads: Vec<u64> =
            node.reads.iter().map(|name| if name.is_empty() { 0 } else { values[name] }).collect();
        for (number, name) in node.writes.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let before = values.insert(name.clone(), hash((index, number, &reads)));
            assert_eq!(before, None, "{name} is made twice");
        }
    }
    stage.outputs.iter().map(|name| (name.clone(), values[name])).collect()
}

/// Runs stages one after the other; gives everything that they give.
pub fn run_chain(whole: &Description, stages: &[Stage]) -> Values {
    let mut values: Values = whole.inputs.iter().map(|name| (name.clone(), hash(("input", name)))).collect();
    for stage in stages {
        values.extend(run(whole, stage, &values));
    }
    values
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
