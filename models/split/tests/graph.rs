//! Split points and stages of graphs that show one property each.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod graphs;

use graphs::run_chain;
use model_split::{Description, Graph, GraphError, Node, SplitError, SplitPoint, Stage};

fn node(reads: &[&str], writes: &[&str]) -> Node {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let name = format!("make_{}", writes.concat());
    Node { name, reads: names(reads), writes: names(writes), repeatable: true, shape_only: false }
}

fn description(inputs: &[&str], constants: &[&str], nodes: Vec<Node>, outputs: &[&str]) -> Description {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Description { nodes, inputs: names(inputs), outputs: names(outputs), constants: names(constants) }
}

fn graph(inputs: &[&str], constants: &[&str], nodes: Vec<Node>, outputs: &[&str]) -> Graph {
    Graph::new(description(inputs, constants, nodes, outputs)).unwrap()
}

fn crossing(points: &[SplitPoint]) -> Vec<(usize, Vec<&str>)> {
    points.iter().map(|point| (point.position, point.crossing.iter().map(String::as_str).collect())).collect()
}

#[test]
fn a_chain_can_be_split_anywhere() {
    let chain = graph(
        &["x"],
        &["w"],
        vec![node(&["x", "w"], &["a"]), node(&["a"], &["b"]), node(&["b", "w"], &["y"])],
        &["y"],
    );
    assert_eq!(crossing(&chain.split_points(1)), [(1, vec!["a"]), (2, vec!["b"])]);
    let stages = chain.stages(&[2]).unwrap();
    assert_eq!((stages[0].nodes.as_slice(), stages[1].nodes.as_slice()), (&[0, 1][..], &[2][..]));
    assert_eq!((stages[0].inputs.join(" "), stages[0].outputs.join(" ")), ("x".to_owned(), "b".to_owned()));
    assert_eq!((stages[1].inputs.join(" "), stages[1].outputs.join(" ")), ("b".to_owned(), "y".to_owned()));
    assert_eq!(constants(&stages), ["w", "w"], "both sides have the weights that they share");
}

fn constants(stages: &[Stage]) -> Vec<String> {
    stages.iter().map(|stage| stage.constants.join(" ")).collect()
}

/// Two blocks with a skip connection each: inside of a block, two tensors cross.
fn residual() -> Graph {
    let block = |from: &str, mid: &str, to: &str| vec![node(&[from], &[mid]), node(&[from, mid], &[to])];
    graph(
        &["x"],
        &[],
        [vec![node(&["x"], &["a"])], block("a", "b", "c"), block("c", "d", "y")].concat(),
        &["y"],
    )
}

#[test]
fn inside_of_a_skip_connection_no_single_tensor_crosses() {
    let residual = residual();
    assert_eq!(crossing(&residual.split_points(1)), [(1, vec!["a"]), (3, vec!["c"])]);
    let two = residual.split_points(2);
    assert_eq!(crossing(&two)[1], (2, vec!["a", "b"]));
    assert_eq!(two.len(), 4);
    assert_eq!(
        (residual.crossing_needed(2), residual.crossing_needed(3), residual.crossing_needed(5)),
        (Some(1), Some(2), None)
    );
    assert_eq!(residual.narrowest().unwrap().crossing, ["a"]);
}

#[test]
fn an_input_that_is_read_late_crosses() {
    let masked = graph(
        &["x", "mask"],
        &[],
        vec![node(&["x"], &["a"]), node(&["a", "mask"], &["b"]), node(&["b"], &["y"])],
        &["y"],
    );
    assert_eq!(crossing(&masked.split_points(2)), [(1, vec!["mask", "a"]), (2, vec!["b"])]);
    let stages = masked.stages(&[1]).unwrap();
    assert_eq!(stages[0].outputs, ["a"], "an input is not passed through a stage");
    assert_eq!(stages[0].inputs, ["x"]);
    assert_eq!(stages[1].inputs, ["mask", "a"]);
}

#[test]
fn an_output_is_given_by_the_stage_that_makes_it_also_if_it_is_read_later() {
    let nodes = vec![
        node(&["x"], &["early"]),
        node(&["early"], &["b"]),
        node(&["b"], &["late"]),
        node(&["b"], &["c"]),
    ];
    let outputs = graph(&["x", "unread"], &["w"], nodes, &["late", "early", "w", "c"]);
    let stages = outputs.stages(&[2]).unwrap();
    assert_eq!(
        (stages[0].inputs.join(" "), stages[0].outputs.join(" ")),
        ("x unread".to_owned(), "b early".to_owned())
    );
    assert_eq!(stages[1].outputs, ["late", "w", "c"], "a constant output comes from the last stage");
    assert_eq!(stages[1].constants, ["w"]);
    let early = outputs.stages(&[1]).unwrap();
    assert_eq!(early[0].outputs, ["early"], "named once, though it crosses and is an output");
    let whole = outputs.description();
    let (one, other) = (run_chain(whole, &early), run_chain(whole, &stages));
    assert!(whole.outputs.iter().all(|output| one[output] == other[output]));
}

#[test]
fn nodes_of_constants_are_in_every_stage_that_needs_them_and_random_ones_are_not() {
    let random = |writes: &str| Node { repeatable: false, ..node(&[], &[writes]) };
    let nodes = vec![
        node(&["w"], &["k"]),
        random("noise"),
        node(&["x", "k", "noise"], &["a"]),
        node(&["a"], &["b"]),
        node(&["b", "k", "noise"], &["y"]),
    ];
    let shared = graph(&["x"], &["w"], nodes, &["y"]);
    assert_eq!(shared.steps(), 4, "the node of a constant does not run for each request");
    assert_eq!(crossing(&shared.split_points(2))[1..], [(2, vec!["noise", "a"]), (3, vec!["noise", "b"])]);
    let stages = shared.stages(&[3]).unwrap();
    assert_eq!((stages[0].nodes.as_slice(), stages[1].nodes.as_slice()), (&[0, 1, 2, 3][..], &[0, 4][..]));
    assert_eq!(constants(&stages), ["w", "w"]);
}

#[test]
fn nodes_of_shapes_of_inputs_are_in_every_stage_that_needs_them() {
    let shape = |reads: &str, writes: &str| Node { shape_only: true, ..node(&[reads], &[writes]) };
    let nodes = vec![
        shape("x", "shape"),
        node(&["shape", "w"], &["target"]),
        node(&["x", "target"], &["a"]),
        node(&["a"], &["b"]),
        shape("b", "inner"),
        node(&["b", "target"], &["c"]),
        node(&["c", "inner"], &["y"]),
    ];
    let reshaped = graph(&["x"], &["w"], nodes, &["y", "target"]);
    assert_eq!(reshaped.steps(), 5, "the shape of a tensor that a node makes is not copied");
    assert_eq!(crossing(&reshaped.split_points(2))[..2], [(1, vec!["x", "a"]), (2, vec!["x", "b"])]);
    let stages = reshaped.stages(&[2]).unwrap();
    assert_eq!(
        (stages[0].nodes.as_slice(), stages[1].nodes.as_slice()),
        (&[0, 1, 2, 3][..], &[0, 1, 4, 5, 6][..])
    );
    assert_eq!((stages[0].outputs.join(" "), stages[1].inputs.join(" ")), ("b".to_owned(), "x b".to_owned()));
    assert_eq!(stages[1].outputs, ["y", "target"]);
}

#[test]
fn nodes_that_lead_to_no_output_are_left_out() {
    let nodes = vec![
        node(&["x"], &["a"]),
        node(&["x", "a"], &["dead"]),
        node(&["a"], &["b"]),
        node(&["dead"], &["deader"]),
        node(&["b"], &["y"]),
    ];
    let dead = graph(&["x"], &[], nodes, &["y"]);
    assert_eq!((dead.dead_nodes(), dead.steps()), (2, 3));
    assert_eq!(crossing(&dead.split_points(1)), [(1, vec!["a"]), (2, vec!["b"])]);
}

#[test]
fn optional_inputs_and_outputs_that_are_left_out_are_no_tensors() {
    let optional =
        graph(&["x"], &[], vec![node(&["x", "", ""], &["a", ""]), node(&["", "a"], &["", "y"])], &["y"]);
    assert_eq!(crossing(&optional.split_points(1)), [(1, vec!["a"])]);
    assert_eq!(optional.part_making(&["a".to_owned(), "x".to_owned()]).outputs, ["a"]);
}

#[test]
fn a_graph_that_is_wrong_names_what_is_wrong() {
    let wrong = |inputs: &[&str], nodes: Vec<Node>, outputs: &[&str]| {
        Graph::new(description(inputs, &[], nodes, outputs)).unwrap_err()
    };
    let made = || node(&["x"], &["y"]);
    let (node_name, tensor) = ("make_y".to_owned(), "z".to_owned());
    assert_eq!(
        wrong(&["x"], vec![node(&["z"], &["y"])], &["y"]),
        GraphError::Unmade { node: node_name, tensor }
    );
    assert_eq!(wrong(&["x"], vec![made(), made()], &["y"]), GraphError::MadeTwice("y".to_owned()));
    assert_eq!(wrong(&["x", "x"], vec![made()], &["y"]), GraphError::MadeTwice("x".to_owned()));
    assert_eq!(wrong(&["x"], vec![made()], &["y", "q"]), GraphError::MissingOutput("q".to_owned()));
    assert_eq!(wrong(&["x"], vec![made()], &["x"]), GraphError::OutputIsInput("x".to_owned()));
    assert_eq!(wrong(&["x"], vec![node(&[], &["y"])], &["y"]), GraphError::NothingRuns);
    let late = wrong(&["x"], vec![node(&["b"], &["y"]), node(&["x"], &["b"])], &["y"]).to_string();
    assert_eq!(
        late,
        "node `make_y` reads `b`, which nothing before it makes: expected nodes in topological order"
    );
}

#[test]
fn positions_outside_of_the_graph_are_refused() {
    let residual = residual();
    for positions in [&[0][..], &[5], &[2, 2], &[3, 1]] {
        assert!(
            matches!(residual.stages(positions), Err(SplitError::Position { last: 4, .. })),
            "{positions:?}"
        );
    }
    let independent = graph(
        &["x"],
        &[],
        vec![node(&["x"], &["a"]), Node { repeatable: false, ..node(&[], &["b"]) }],
        &["a", "b"],
    );
    let error = independent.stages(&[1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stage 2 would have no inputs: expected another position for the split points next to it"
    );
    assert!(independent.split_points(9).is_empty(), "two independent parts are not a pipeline");
}
