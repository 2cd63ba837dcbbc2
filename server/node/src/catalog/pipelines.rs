//! `[pipelines.NAME]` as ensembles: which tensor of which stage each stage takes.

use std::collections::BTreeMap;

use models::{Dim, Ensemble, EnsembleStep, EnsembleTensor, Signature, TensorSpec, VOTE_CLASS, VOTE_SHARE};
use oip::Datatype;
use router_core::pipeline::Graph;

use crate::config::{PipelineSettings, StageSettings};

/// Relative tolerance for sums of floating-point numbers.
const SLACK: f64 = 1e-9;

/// The ensemble of a pipeline. `signature_of` says what a model takes and gives.
///
/// # Errors
/// What is wrong with its stages.
pub(super) fn ensemble(
    name: &str,
    settings: &PipelineSettings,
    signature_of: impl Fn(&StageSettings) -> Result<Signature, String>,
) -> Result<Ensemble, String> {
    let mut stages: Vec<Stage> = Vec::new();
    let mut inputs: BTreeMap<String, EnsembleTensor> = BTreeMap::new();
    for settings in &settings.stages {
        let own = settings.name.clone().unwrap_or_else(|| settings.model.clone());
        let wrong = |problem: String| format!("stages: `{own}`: {problem}");
        if stages.iter().any(|stage| stage.step.name == own) {
            return Err(wrong(
                "two stages have this name: expected `name = \"...\"` for one of them".to_owned(),
            ));
        }
        let signature = signature_of(settings).map_err(&wrong)?;
        let stage = Stage::new(own.clone(), settings, signature, &stages, &mut inputs).map_err(wrong)?;
        stages.push(stage);
    }
    let vote = match settings.vote.is_empty() {
        true => None,
        false => Some(vote(&settings.vote, &stages).map_err(|problem| format!("vote: {problem}"))?),
    };
    let models = stages.len();
    stages.extend(vote);
    let (outputs, sources) = outputs(settings, &stages)?;
    stages.truncate(models);
    let ensemble = Ensemble {
        inputs: inputs.into_values().collect(),
        outputs,
        sources,
        max_batch: 0,
        free_rows: true,
        steps: stages.into_iter().map(|stage| stage.step).collect(),
        vote: settings.vote.clone(),
    };
    let ensemble = ensemble.ordered(name).map_err(|error| format!("stages: {error}"))?;
    let graph = Graph::new(ensemble.after()).map_err(|error| format!("stages: {error}"))?;
    shares(settings, &ensemble, &graph)?;
    Ok(ensemble)
}

/// The share of the objective of each stage.
///
/// # Errors
/// What is wrong with them.
pub(super) fn shares(
    settings: &PipelineSettings,
    ensemble: &Ensemble,
    graph: &Graph,
) -> Result<Vec<f64>, String> {
    let Some(asked) = &settings.split else { return Ok(graph.even_shares()) };
    if let Some(unknown) = asked.keys().find(|name| ensemble.steps.iter().all(|step| step.name != **name)) {
        let known: Vec<&str> = ensemble.steps.iter().map(|step| step.name.as_str()).collect();
        return Err(format!("split: `{unknown}`: expected one of the stages: {}", known.join(", ")));
    }
    let share = |step: &EnsembleStep| {
        asked
            .get(&step.name)
            .copied()
            .ok_or_else(|| format!("split: expected a share for stage `{}`", step.name))
    };
    let shares = ensemble.steps.iter().map(share).collect::<Result<Vec<f64>, String>>()?;
    let longest = graph.longest_to(|stage| shares.get(stage).copied().unwrap_or_default());
    let most = longest.into_iter().fold(0.0, f64::max);
    if most > 1.0 + SLACK {
        return Err(format!("split: the shares along a path add up to {most:.3}: expected at most 1"));
    }
    Ok(shares)
}

struct Stage {
    step: EnsembleStep,
    signature: Signature,
}

impl Stage {
    fn new(
        name: String,
        settings: &StageSettings,
        signature: Signature,
        earlier: &[Stage],
        inputs: &mut BTreeMap<String, EnsembleTensor>,
    ) -> Result<Self, String> {
        let from = settings.from.all().iter().map(|from| {
            let found = earlier.iter().find(|stage| stage.step.name == *from);
            found.ok_or_else(|| format!("from: `{from}`: expected the name of an earlier stage"))
        });
        let from = from.collect::<Result<Vec<_>, String>>()?;
        let known = |input: &str| signature.inputs.iter().any(|spec| spec.name == input);
        if let Some(unknown) = settings.inputs.keys().find(|input| !known(input)) {
            let expected: Vec<&str> = signature.inputs.iter().map(|spec| spec.name.as_str()).collect();
            return Err(format!(
                "inputs: model `{}` has no input `{unknown}`: expected some of {}",
                settings.model,
                expected.join(", ")
            ));
        }
        let mut taken = BTreeMap::new();
        for spec in &signature.inputs {
            let source = match settings.inputs.get(&spec.name) {
                Some(source) => source.clone(),
                None => match default_source(spec, &from, signature.inputs.len() == 1)? {
                    Some(source) => source,
                    None if spec.optional => continue,
                    None => spec.name.clone(),
                },
            };
            match written(&source, earlier) {
                Some(Ok(())) => {}
                Some(Err(problem)) => return Err(format!("inputs: `{}`: {problem}", spec.name)),
                None => {
                    let tensor = tensor(&source, spec);
                    inputs.entry(source.clone()).or_insert(tensor);
                }
            }
            taken.insert(spec.name.clone(), source);
        }
        let outputs = signature.outputs.iter();
        let step = EnsembleStep {
            outputs: outputs.map(|spec| (spec.name.clone(), format!("{name}.{}", spec.name))).collect(),
            name,
            model: settings.model.clone(),
            version: settings.version,
            inputs: taken,
            answer_if: settings.answer_if.clone(),
            fan_out: settings.fan_out,
        };
        Ok(Self { step, signature })
    }
}

/// The vote as a stage that takes what the others vote, for `outputs`. It has no model.
fn vote(sources: &[String], stages: &[Stage]) -> Result<Stage, String> {
    let Some((name, _)) = VOTE_CLASS.split_once('.') else { return Err("expected a name".to_owned()) };
    if stages.iter().any(|stage| stage.step.name == name) {
        return Err(format!("a stage is called `{name}`: expected another `name` of it"));
    }
    if let Some(stage) = stages.iter().find(|stage| stage.step.answer_if.is_some()) {
        return Err(format!("`{}` has answer_if: expected stages that always run", stage.step.name));
    }
    let mut voters: Vec<&str> = Vec::new();
    for source in sources {
        written(source, stages).ok_or_else(|| format!("`{source}`: expected \"STAGE.TENSOR\""))??;
        let (voter, output) = source.split_once('.').unwrap_or_default();
        if voters.contains(&voter) {
            return Err(format!("`{voter}` is there twice: expected one output of each stage"));
        }
        voters.push(voter);
        let stage = stages.iter().find(|stage| stage.step.name == voter);
        let mut specs = stage.into_iter().flat_map(|stage| &stage.signature.outputs);
        let spec = specs.find(|spec| spec.name == output);
        if spec.is_some_and(|spec| spec.datatype == Datatype::Bytes) {
            return Err(format!("`{source}`: expected whole numbers, or numbers for each class, got BYTES"));
        }
    }
    let tensors = [(VOTE_CLASS, Datatype::Int64), (VOTE_SHARE, Datatype::Fp32)];
    let outputs = tensors.map(|(tensor, datatype)| TensorSpec {
        name: tensor.rsplit('.').next().unwrap_or_default().to_owned(),
        datatype,
        dims: vec![Dim::Free],
        optional: false,
    });
    let step = EnsembleStep {
        name: name.to_owned(),
        model: String::new(),
        version: None,
        inputs: sources.iter().map(|source| (source.clone(), source.clone())).collect(),
        outputs: outputs.iter().map(|spec| (spec.name.clone(), format!("{name}.{}", spec.name))).collect(),
        answer_if: None,
        fan_out: 1.0,
    };
    Ok(Stage { step, signature: Signature { inputs: Vec::new(), outputs: outputs.to_vec(), max_batch: 0 } })
}

/// The output of the stages in `from` that an input takes if nothing else is said: the one of its name, or the only one.
fn default_source(spec: &TensorSpec, from: &[&Stage], is_only: bool) -> Result<Option<String>, String> {
    if from.is_empty() {
        return Ok(None);
    }
    let of_name = from.iter().find(|stage| stage.step.outputs.contains_key(&spec.name));
    if let Some(stage) = of_name {
        return Ok(Some(format!("{}.{}", stage.step.name, spec.name)));
    }
    if let [stage] = from
        && let [only] = &stage.signature.outputs[..]
        && is_only
    {
        return Ok(Some(format!("{}.{}", stage.step.name, only.name)));
    }
    if spec.optional {
        return Ok(None);
    }
    let problem = "the stages in `from` have no output of this name: expected `inputs = { ... }`";
    Err(format!("input `{}`: {problem}", spec.name))
}

/// Whether a stage writes a tensor. `None`: it is an input of the pipeline.
fn written(source: &str, stages: &[Stage]) -> Option<Result<(), String>> {
    let (stage, output) = source.split_once('.')?;
    let stage = stages.iter().find(|one| one.step.name == stage)?;
    Some(match stage.step.outputs.contains_key(output) {
        true => Ok(()),
        false => {
            let known: Vec<&str> = stage.step.outputs.keys().map(String::as_str).collect();
            Err(format!("`{source}`: expected one of its outputs: {}", known.join(", ")))
        }
    })
}

fn tensor(name: &str, spec: &TensorSpec) -> EnsembleTensor {
    let dims = spec.dims.iter().map(|dim: &Dim| dim.to_wire()).collect();
    EnsembleTensor { name: name.to_owned(), datatype: spec.datatype, dims }
}

type Outputs = (Vec<EnsembleTensor>, BTreeMap<String, Vec<String>>);

fn outputs(settings: &PipelineSettings, stages: &[Stage]) -> Result<Outputs, String> {
    let mut asked: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, sources) in &settings.outputs {
        asked.insert(name.clone(), sources.all().to_vec());
    }
    if asked.is_empty() {
        let is_taken = |tensor: &String| {
            stages.iter().any(|stage| stage.step.inputs.values().any(|taken| taken == tensor))
        };
        let last = stages.iter().filter(|stage| !stage.step.outputs.values().any(is_taken));
        for (output, tensor) in last.flat_map(|stage| &stage.step.outputs) {
            if asked.insert(output.clone(), vec![tensor.clone()]).is_some() {
                return Err(format!(
                    "outputs: two stages have an output `{output}`: expected `outputs = {{ ... }}`"
                ));
            }
        }
    }
    let mut tensors = Vec::new();
    for (name, sources) in &asked {
        let spec = sources.iter().map(|source| {
            match written(source, stages) {
                Some(Ok(())) => {}
                Some(Err(problem)) => return Err(format!("outputs: `{name}`: {problem}")),
                None => return Err(format!("outputs: `{name}`: `{source}`: expected \"STAGE.TENSOR\"")),
            }
            let (stage, output) = source.split_once('.').unwrap_or_default();
            let stage = stages.iter().find(|one| one.step.name == stage);
            let specs = stage.map(|stage| stage.signature.outputs.as_slice()).unwrap_or_default();
            specs.iter().find(|spec| spec.name == output).ok_or_else(|| format!("outputs: `{name}`: unknown"))
        });
        let specs = spec.collect::<Result<Vec<_>, String>>()?;
        let Some(first) = specs.first() else {
            return Err(format!("outputs: `{name}`: expected \"STAGE.TENSOR\", or a list"));
        };
        if let Some(other) =
            specs.iter().find(|spec| spec.datatype != first.datatype || spec.dims.len() != first.dims.len())
        {
            return Err(format!(
                "outputs: `{name}`: its sources have {} and {}, or different numbers of dimensions: expected one type",
                first.datatype, other.datatype
            ));
        }
        let mut one = tensor(name, first);
        for spec in &specs {
            for (dim, other) in one.dims.iter_mut().zip(&spec.dims) {
                if *dim != other.to_wire() {
                    *dim = -1;
                }
            }
        }
        tensors.push(one);
    }
    Ok((tensors, asked))
}

#[cfg(test)]
mod tests {
    use oip::Datatype;

    use super::*;

    fn signature(inputs: &[(&str, Datatype)], outputs: &[(&str, Datatype)]) -> Signature {
        let spec = |(name, datatype): &(&str, Datatype)| TensorSpec {
            name: (*name).to_owned(),
            datatype: *datatype,
            dims: vec![Dim::Free, Dim::Fixed(4)],
            optional: false,
        };
        Signature {
            inputs: inputs.iter().map(spec).collect(),
            outputs: outputs.iter().map(spec).collect(),
            max_batch: 8,
        }
    }

    fn of(text: &str) -> Result<Ensemble, String> {
        use Datatype::{Bool, Fp32};
        let settings: PipelineSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        ensemble("ocr", &settings, |stage| match stage.model.as_str() {
            "det" => Ok(signature(&[("image", Fp32)], &[("boxes", Fp32)])),
            "crop" => Ok(signature(&[("image", Fp32), ("boxes", Fp32)], &[("patches", Fp32)])),
            "rec" => Ok(signature(&[("x", Fp32)], &[("text", Fp32), ("sure", Bool)])),
            other => Err(format!("model `{other}` is unknown")),
        })
    }

    #[test]
    fn tensors_go_to_inputs_of_their_names_or_where_the_settings_say() {
        let made = of("stages = [{ model = 'det' }, { model = 'crop', from = 'det', inputs = { image = 'image' } }, { model = 'rec', from = 'crop' }]").unwrap();
        let inputs: Vec<&str> = made.inputs.iter().map(|input| input.name.as_str()).collect();
        let outputs: Vec<&str> = made.outputs.iter().map(|output| output.name.as_str()).collect();
        assert_eq!((inputs, outputs), (vec!["image"], vec!["sure", "text"]));
        assert_eq!(made.after(), [vec![], vec![0], vec![1]]);
        assert_eq!(made.steps[1].inputs["boxes"], "det.boxes");
        assert_eq!(made.steps[2].inputs["x"], "crop.patches", "the only output goes to the only input");
        assert_eq!(made.sources["text"], ["rec.text"]);
        assert_eq!((made.max_batch, made.inputs[0].dims.clone()), (0, vec![-1, 4]));
    }

    #[test]
    fn an_early_answer_has_several_sources() {
        let made = of("stages = [{ name = 'small', model = 'rec', answer_if = 'sure' }, { name = 'large', model = 'rec', inputs = { x = 'x' } }]\noutputs = { text = ['large.text', 'small.text'] }").unwrap();
        assert_eq!(made.sources["text"], ["large.text", "small.text"]);
        assert_eq!(made.steps[0].answer_if.as_deref(), Some("sure"));
    }

    #[test]
    fn a_vote_writes_outputs_of_its_own() {
        let stages = "stages = [{ name = 's', model = 'rec' }, { name = 'l', model = 'rec' }]";
        let voted = format!("{stages}\nvote = ['s.text', 'l.text']");
        let made = of(&format!("{voted}\noutputs = {{ label = 'vote.class', sure = 's.sure' }}")).unwrap();
        assert_eq!((made.vote.len(), made.steps.len()), (2, 2));
        assert_eq!(made.sources["label"], [VOTE_CLASS]);
        assert_eq!((made.outputs[0].datatype, made.outputs[0].dims.clone()), (Datatype::Int64, vec![-1]));
        let made = of(&voted).unwrap();
        let outputs: Vec<&str> = made.outputs.iter().map(|output| output.name.as_str()).collect();
        assert_eq!(outputs, ["class", "share"], "the outputs of stages that vote are taken");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (text, expected) in [
            ("stages = []", "expected 1 to 64 steps, got 0"),
            ("stages = [{ model = 'dett' }]", "stages: `dett`: model `dett` is unknown"),
            ("stages = [{ model = 'det' }, { model = 'det' }]", "stages: `det`: two stages have this name"),
            (
                "stages = [{ model = 'rec', from = 'det' }]",
                "from: `det`: expected the name of an earlier stage",
            ),
            (
                "stages = [{ model = 'det' }, { model = 'crop', from = 'det' }]",
                "input `image`: the stages in `from` have no output",
            ),
            (
                "stages = [{ model = 'det', inputs = { y = 'image' } }]",
                "model `det` has no input `y`: expected some of image",
            ),
            (
                "stages = [{ model = 'det' }, { model = 'rec', inputs = { x = 'det.box' } }]",
                "`det.box`: expected one of its outputs: boxes",
            ),
            (
                "stages = [{ model = 'det' }]\noutputs = { a = 'det' }",
                "`a`: `det`: expected \"STAGE.TENSOR\"",
            ),
            (
                "stages = [{ model = 'rec' }]\noutputs = { a = ['rec.text', 'rec.sure'] }",
                "its sources have FP32 and BOOL",
            ),
            ("stages = [{ model = 'det', fan = 3 }]", "unknown field `fan`"),
            (
                "stages = [{ model = 'det' }]\nsplit = { dett = 1 }",
                "split: `dett`: expected one of the stages: det",
            ),
            (
                "stages = [{ model = 'det' }, { model = 'rec', inputs = { x = 'det.boxes' } }]\nsplit = { det = 0.5 }",
                "split: expected a share for stage `rec`",
            ),
            (
                "stages = [{ model = 'det' }, { model = 'rec', inputs = { x = 'det.boxes' } }]\nsplit = { det = 0.5, rec = 0.6 }",
                "split: the shares along a path add up to 1.100: expected at most 1",
            ),
            (
                "stages = [{ model = 'det' }]\nvote = ['det', 'det.boxes']",
                "vote: `det`: expected \"STAGE.TENSOR\"",
            ),
            (
                "stages = [{ model = 'det' }]\nvote = ['det.box']",
                "vote: `det.box`: expected one of its outputs: boxes",
            ),
            (
                "stages = [{ model = 'det' }]\nvote = ['det.boxes', 'det.boxes']",
                "vote: `det` is there twice: expected one output of each stage",
            ),
            (
                "stages = [{ name = 'vote', model = 'det' }]\nvote = ['vote.boxes']",
                "vote: a stage is called `vote`",
            ),
            (
                "stages = [{ model = 'rec', answer_if = 'sure' }]\nvote = ['rec.text']",
                "vote: `rec` has answer_if: expected stages that always run",
            ),
            ("stages = [{ model = 'det' }]\ndeadlines = 'none'", "unknown variant `none`"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
