//! Graphs of operators: nodes in topological order, and who makes and reads each tensor.

use std::collections::{BTreeMap, BTreeSet};

use crate::GraphError;

/// Largest number of nodes of a graph.
pub const NODES_MAX: usize = 200_000;
/// Largest number of tensors of a graph, constants included.
pub const TENSORS_MAX: usize = 1_000_000;

/// One operator of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Name for messages.
    pub name: String,
    /// Tensors that it reads, including those that its subgraphs capture. An empty name is an optional input left out.
    pub reads: Vec<String>,
    /// Tensors that it makes. An empty name is an optional output left out.
    pub writes: Vec<String>,
    /// Whether it gives the same whenever it reads the same, so that it may run in several stages. False for random numbers.
    pub repeatable: bool,
    /// Whether it gives only the shape or the size of what it reads.
    pub shape_only: bool,
}

/// What a graph consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Nodes, each after those whose tensors it reads.
    pub nodes: Vec<Node>,
    /// Tensors that a request gives.
    pub inputs: Vec<String>,
    /// Tensors that a response has.
    pub outputs: Vec<String>,
    /// Tensors whose value is in the file.
    pub constants: Vec<String>,
}

/// A valid graph, ready to be split.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) description: Description,
    /// Nodes that run once for each request, in order, and that an output depends on.
    pub(crate) steps: Vec<usize>,
    /// Nodes that are in every stage that needs them: they depend on constants and shapes of inputs only.
    pub(crate) copied: Copied,
    /// The node that makes a tensor.
    pub(crate) makers: BTreeMap<String, usize>,
    /// Tensors that differ between requests, by name.
    pub(crate) moving: BTreeMap<String, Moving>,
    /// Nodes that no output depends on.
    dead: usize,
}

/// A tensor that differs between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    /// Number of steps after which it exists; 0 for an input.
    pub made: usize,
    /// The last step that reads it; `None` if no step does.
    pub last_read: Option<usize>,
}

impl Graph {
    /// Checks a graph and finds out which nodes depend on its inputs.
    ///
    /// # Errors
    /// What is wrong with it, by the name of the node or the tensor.
    pub fn new(description: Description) -> Result<Self, GraphError> {
        let too_large = |what, count, max| GraphError::TooLarge { what, count, max };
        let count = description.nodes.len();
        if count > NODES_MAX {
            return Err(too_large("nodes", count, NODES_MAX));
        }
        let written = description.nodes.iter().map(|node| node.writes.len().saturating_add(node.reads.len()));
        let tensors = written.fold(description.constants.len(), usize::saturating_add);
        if tensors > TENSORS_MAX {
            return Err(too_large("tensors", tensors, TENSORS_MAX));
        }
        let makers = makers(&description)?;
        check_outputs(&description, &makers)?;
        let live = live(&description, &makers);
        let copied = copied(&description, &makers);
        let steps: Vec<usize> =
            (0..count).filter(|node| live.contains(node) && !copied.contains_key(node)).collect();
        if steps.is_empty() {
            return Err(GraphError::NothingRuns);
        }
        let moving = moving(&description, &steps, &makers, &copied);
        let dead = count.saturating_sub(live.len());
        Ok(Self { description, steps, copied, makers, moving, dead })
    }

    /// What it was made from.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Number of nodes that run once for each request.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Number of nodes that no output depends on. Stages leave them out.
    pub fn dead_nodes(&self) -> usize {
        self.dead
    }

    /// Whether a tensor is an input of the graph.
    pub fn is_input(&self, tensor: &str) -> bool {
        self.moving.get(tensor).is_some_and(|moving| moving.made == 0)
    }
}

/// Names that are not left out.
pub(crate) fn given(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().map(String::as_str).filter(|name| !name.is_empty())
}

fn makers(description: &Description) -> Result<BTreeMap<String, usize>, GraphError> {
    let sources = description.inputs.iter().chain(&description.constants);
    let mut known = BTreeSet::new();
    for name in sources {
        if !known.insert(name.as_str()) {
            return Err(GraphError::MadeTwice(name.clone()));
        }
    }
    let mut makers = BTreeMap::new();
    for (index, node) in description.nodes.iter().enumerate() {
        if let Some(tensor) = given(&node.reads).find(|name| !known.contains(name)) {
            return Err(GraphError::Unmade { node: node.name.clone(), tensor: tensor.to_owned() });
        }
        for name in given(&node.writes) {
            if !known.insert(name) {
                return Err(GraphError::MadeTwice(name.to_owned()));
            }
            makers.insert(name.to_owned(), index);
        }
    }
    Ok(makers)
}

fn check_outputs(description: &Description, makers: &BTreeMap<String, usize>) -> Result<(), GraphError> {
    let mut seen = BTreeSet::new();
    for output in &description.outputs {
        if !seen.insert(output) {
            return Err(GraphError::MadeTwice(output.clone()));
        }
        if description.inputs.contains(output) {
            return Err(GraphError::OutputIsInput(output.clone()));
        }
        if !makers.contains_key(output) && !description.constants.contains(output) {
            return Err(GraphError::MissingOutput(output.clone()));
        }
    }
    Ok(())
}

/// Nodes that an output depends on.
fn live(description: &Description, makers: &BTreeMap<String, usize>) -> BTreeSet<usize> {
    let mut open: Vec<usize> =
        description.outputs.iter().filter_map(|name| makers.get(name).copied()).collect();
    let mut live: BTreeSet<usize> = open.iter().copied().collect();
    while let Some(node) = open.pop().and_then(|index| description.nodes.get(index)) {
        for maker in given(&node.reads).filter_map(|name| makers.get(name).copied()) {
            if live.insert(maker) {
                open.push(maker);
            }
        }
    }
    live
}

/// Nodes that may be in several stages, each with the inputs of the graph whose shapes it depends on.
pub(crate) type Copied = BTreeMap<usize, BTreeSet<String>>;

/// Repeatable nodes that depend on constants and on shapes of inputs only, directly or through other such nodes.
fn copied(description: &Description, makers: &BTreeMap<String, usize>) -> Copied {
    let constants: BTreeSet<&str> = description.constants.iter().map(String::as_str).collect();
    let inputs: BTreeSet<&str> = description.inputs.iter().map(String::as_str).collect();
    let mut copied = Copied::new();
    for (index, node) in description.nodes.iter().enumerate().filter(|(_, node)| node.repeatable) {
        let of_read = |name: &str| match makers.get(name) {
            Some(maker) => copied.get(maker).cloned(),
            None if constants.contains(name) => Some(BTreeSet::new()),
            None => (node.shape_only && inputs.contains(name)).then(|| BTreeSet::from([name.to_owned()])),
        };
        let sources = given(&node.reads).map(of_read).collect::<Option<Vec<_>>>();
        if let Some(sources) = sources {
            copied.insert(index, sources.into_iter().flatten().collect());
        }
    }
    copied
}

fn moving(
    description: &Description,
    steps: &[usize],
    makers: &BTreeMap<String, usize>,
    copied: &Copied,
) -> BTreeMap<String, Moving> {
    let inputs = description.inputs.iter().map(|name| (name.clone(), Moving { made: 0, last_read: None }));
    let mut moving: BTreeMap<String, Moving> = inputs.collect();
    // Who reads a tensor of a copied node reads the inputs that the node depends on.
    let read = |moving: &mut BTreeMap<String, Moving>, name: &str, step: usize| {
        let sources = makers.get(name).and_then(|maker| copied.get(maker));
        let names = sources.into_iter().flatten().map(String::as_str).chain([name]);
        for name in names {
            if let Some(tensor) = moving.get_mut(name) {
                tensor.last_read = Some(step);
            }
        }
    };
    for (step, node) in steps.iter().filter_map(|&index| description.nodes.get(index)).enumerate() {
        given(&node.reads).for_each(|name| read(&mut moving, name, step));
        let made = step.saturating_add(1);
        moving.extend(given(&node.writes).map(|name| (name.to_owned(), Moving { made, last_read: None })));
    }
    // Outputs that copied nodes make come from the last stage.
    let last = steps.len().saturating_sub(1);
    let made_by_copies = |name: &&String| makers.get(*name).is_some_and(|maker| copied.contains_key(maker));
    description.outputs.iter().filter(made_by_copies).for_each(|name| read(&mut moving, name, last));
    moving
}
