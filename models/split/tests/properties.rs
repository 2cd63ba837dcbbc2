//! Random graphs: what crosses a split point separates the graph, and the stages together are the whole.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod graphs;

use std::collections::{BTreeMap, BTreeSet};

use graphs::{run, run_chain};
use model_split::{Description, Graph, Node, Stage};
use proptest::prelude::*;

/// A random graph. Each node reads any tensors before it, and the outputs are any tensors that nodes make.
fn descriptions() -> impl Strategy<Value = Description> {
    let node = (prop::collection::vec(any::<prop::sample::Index>(), 0..4), 1_usize..3, 0_u8..10);
    let nodes = prop::collection::vec(node, 2..30);
    let outputs = prop::collection::vec(any::<prop::sample::Index>(), 1..4);
    (1_usize..4, 0_usize..4, nodes, outputs).prop_map(|(inputs, constants, nodes, outputs)| {
        let named =
            |word: &str, count: usize| (0..count).map(|number| format!("{word}{number}")).collect::<Vec<_>>();
        let (inputs, constants) = (named("input", inputs), named("constant", constants));
        let mut tensors = [inputs.clone(), constants.clone()].concat();
        let (before, mut described) = (tensors.len(), Vec::new());
        for (number, (reads, writes, chance)) in nodes.into_iter().enumerate() {
            let mut reads: Vec<String> = reads.iter().map(|index| index.get(&tensors).clone()).collect();
            if chance == 1 {
                reads.push(String::new());
            }
            let writes: Vec<String> = (0..writes).map(|part| format!("t{number}_{part}")).collect();
            tensors.extend(writes.iter().cloned());
            described.push(Node {
                name: format!("node{number}"),
                reads,
                writes,
                repeatable: chance != 0,
                shape_only: chance > 6,
            });
        }
        let outputs: BTreeSet<String> =
            outputs.iter().map(|index| index.get(&tensors[before..]).clone()).collect();
        Description { nodes: described, inputs, outputs: outputs.into_iter().collect(), constants }
    })
}

/// What is known of a graph by trying all paths.
struct Oracle<'a> {
    whole: &'a Description,
    makers: BTreeMap<&'a str, usize>,
}

impl<'a> Oracle<'a> {
    fn of(whole: &'a Description) -> Self {
        let makers = whole
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(index, node)| node.writes.iter().map(move |name| (name.as_str(), index)));
        Self { whole, makers: makers.collect() }
    }

    /// Whether a node has to be in one stage: it depends on more than constants and shapes of inputs.
    fn runs_once(&self, node: &Node) -> bool {
        let is_input = |name: &String| self.whole.inputs.contains(name);
        let varies = |name: &String| match self.makers.get(name.as_str()) {
            Some(maker) => self.runs_once(&self.whole.nodes[*maker]),
            None => is_input(name) && !node.shape_only,
        };
        !node.repeatable || node.reads.iter().any(varies)
    }

    /// Nodes from which a path leads to an output, over tensors that are not in `without`.
    fn leading_to_outputs(&self, without: &BTreeSet<&str>) -> (BTreeSet<usize>, BTreeSet<String>) {
        let (mut nodes, mut reached) = (BTreeSet::new(), BTreeSet::new());
        let mut open: Vec<&str> = self.whole.outputs.iter().map(String::as_str).collect();
        while let Some(tensor) = open.pop() {
            if without.contains(tensor) || !reached.insert(tensor.to_owned()) {
                continue;
            }
            if let Some(&index) = self.makers.get(tensor) {
                nodes.insert(index);
                open.extend(self.whole.nodes[index].reads.iter().map(String::as_str));
            }
        }
        (nodes, reached)
    }
}

fn whole_of(graph: &Graph) -> Stage {
    graph.stages(&[]).unwrap().remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn what_crosses_a_split_point_separates_what_is_before_it_from_what_is_behind_it(description in descriptions()) {
        let Ok(graph) = Graph::new(description) else { return Ok(()) };
        let whole = graph.description();
        let oracle = Oracle::of(whole);
        for point in graph.split_points(usize::MAX) {
            let Ok(stages) = graph.stages(&[point.position]) else { continue };
            let crossing: BTreeSet<&str> = point.crossing.iter().map(String::as_str).collect();
            // Without the crossing tensors, the second stage's outputs depend on no node of the first and on no input.
            let behind = Description { outputs: stages[1].outputs.clone(), ..whole.clone() };
            let (nodes, reached) = Oracle { whole: &behind, makers: oracle.makers.clone() }.leading_to_outputs(&crossing);
            for index in nodes {
                let moves = oracle.runs_once(&whole.nodes[index]);
                prop_assert!(!moves || stages[1].nodes.contains(&index), "{} is reached around {:?}", whole.nodes[index].name, point);
            }
            prop_assert!(whole.inputs.iter().all(|input| !reached.contains(input)));
            // Each is needed: the second stage reads it, and the first, or a request, gives it.
            let read: BTreeSet<&str> = stages[1].inputs.iter().map(String::as_str).collect();
            prop_assert_eq!(&read, &crossing);
            for name in crossing {
                prop_assert!(stages[0].outputs.iter().any(|output| output == name) || graph.is_input(name));
            }
        }
    }

    #[test]
    fn stages_have_the_nodes_of_the_whole_and_compute_the_same(
        description in descriptions(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
    ) {
        let Ok(graph) = Graph::new(description) else { return Ok(()) };
        let points = graph.split_points(usize::MAX);
        prop_assume!(!points.is_empty());
        let positions: BTreeSet<usize> = picks.iter().map(|pick| pick.get(&points).position).collect();
        let positions: Vec<usize> = positions.into_iter().collect();
        let Ok(stages) = graph.stages(&positions) else { return Ok(()) };
        let whole = graph.description();
        let oracle = Oracle::of(whole);
        let (live, _) = oracle.leading_to_outputs(&BTreeSet::new());
        for (index, node) in whole.nodes.iter().enumerate() {
            let holders = stages.iter().filter(|stage| stage.nodes.contains(&index)).count();
            let moves = oracle.runs_once(node);
            match (live.contains(&index), moves) {
                (false, _) => prop_assert_eq!(holders, 0, "{} leads to no output", node.name),
                (true, true) => prop_assert_eq!(holders, 1, "{}", node.name),
                (true, false) => prop_assert!(holders >= 1, "{}", node.name),
            }
        }
        // A stage runs on its own inputs and constants: `run` panics if something is missing.
        let (together, alone) = (run_chain(whole, &stages), run_chain(whole, &[whole_of(&graph)]));
        for output in &whole.outputs {
            prop_assert_eq!(together[output], alone[output], "{}", output);
        }
    }

    #[test]
    fn a_part_makes_what_was_asked_for(description in descriptions(), pick in any::<prop::sample::Index>()) {
        let Ok(graph) = Graph::new(description) else { return Ok(()) };
        let whole = graph.description();
        let made: Vec<String> = whole.nodes.iter().flat_map(|node| node.writes.clone()).collect();
        let part = graph.part_making(&[pick.get(&made).clone()]);
        let inputs = run_chain(whole, &[]);
        let values = run(whole, &part, &inputs);
        prop_assert_eq!(values.len(), 1);
        let all = Stage { nodes: (0..whole.nodes.len()).collect(), inputs: whole.inputs.clone(), outputs: made.clone(), constants: whole.constants.clone() };
        prop_assert_eq!(&values[pick.get(&made)], &run(whole, &all, &inputs)[pick.get(&made)]);
    }
}
