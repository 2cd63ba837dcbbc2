//! Possible split points: positions that few tensors cross, whose types and sizes are known.

use std::collections::{BTreeMap, BTreeSet};

use model_split::SplitPoint;
use models::engine::Session;
use models::split::SplitModel;
use models::{Known, LoadOptions, Loader, ModelFiles, inspect};
use oip::Tensor;

use super::Subject;
use super::inputs::Probes;

/// Tensors whose shapes one run finds out.
const PROBED_MAX: usize = 128;

/// Possible split points and the tensors that cross them.
#[derive(Debug)]
pub struct Candidates {
    /// In the order of their positions.
    pub points: Vec<SplitPoint>,
    /// Bytes for one row of each tensor that crosses a split point.
    pub bytes: BTreeMap<String, u64>,
    /// Positions that were ruled out because a crossing tensor does not have the batch as its first dimension.
    pub unbatched: usize,
}

impl Candidates {
    /// Finds the split points that at most `crossing_max` tensors cross. `probes` are run to see shapes.
    ///
    /// # Errors
    /// The types of tensors cannot be found out, or a part of the model does not run.
    pub fn find(
        model: &mut SplitModel,
        subject: &Subject<'_>,
        crossing_max: usize,
        probes: &Probes,
    ) -> anyhow::Result<Self> {
        let mut points = model.graph().split_points(crossing_max);
        let crossing: BTreeSet<String> =
            points.iter().flat_map(|point| point.crossing.iter().cloned()).collect();
        let (inputs, made): (Vec<String>, Vec<String>) =
            crossing.into_iter().partition(|name| model.graph().is_input(name));
        model.learn_types(subject.loader, &made)?;
        let typed: Vec<String> = made.into_iter().filter(|name| model.has_type(name)).collect();
        let mut shapes = Shapes::default();
        for tensor in probes.batches.first().into_iter().flat_map(|batch| batch.inputs.iter().flatten()) {
            if inputs.contains(&tensor.name) {
                shapes.bytes.insert(tensor.name.clone(), tensor.data.len() as u64);
            }
        }
        for chunk in typed.chunks(PROBED_MAX) {
            shapes.probe(model, subject, chunk, probes)?;
        }
        let is_known = |name: &String| shapes.bytes.contains_key(name);
        points.retain(|point| {
            point.crossing.iter().all(is_known) && model.graph().stages(&[point.position]).is_ok()
        });
        let before = points.len();
        if subject.is_batched() {
            points.retain(|point| !point.crossing.iter().any(|name| shapes.unbatched.contains(name)));
        }
        Ok(Self { unbatched: before.saturating_sub(points.len()), points, bytes: shapes.bytes })
    }

    /// Bytes for one row that cross a split point.
    pub fn bytes_of(&self, point: &SplitPoint) -> u64 {
        let bytes = point.crossing.iter().filter_map(|name| self.bytes.get(name));
        bytes.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// What runs show of tensors.
#[derive(Default)]
struct Shapes {
    bytes: BTreeMap<String, u64>,
    /// Tensors that do not have one row for each row of the inputs.
    unbatched: BTreeSet<String>,
}

impl Shapes {
    fn probe(
        &mut self,
        model: &mut SplitModel,
        subject: &Subject<'_>,
        tensors: &[String],
        probes: &Probes,
    ) -> anyhow::Result<()> {
        let (files, signature) = model.probe(tensors)?;
        let known = Some(Known { engine: subject.engine, signature });
        let options = LoadOptions { free_batch: false, known, ..subject.options.clone() };
        let mut session = subject.loader.load(&files, &options)?;
        let mut seen: BTreeMap<String, Vec<Vec<u64>>> = BTreeMap::new();
        for (number, batch) in probes.batches.iter().enumerate() {
            for Tensor { name, shape, data, .. } in session.run(batch)? {
                if shape.extents().first() != Some(&u64::from(batch.rows)) {
                    self.unbatched.insert(name.clone());
                }
                if number == 0 {
                    self.bytes.insert(name.clone(), data.len() as u64);
                }
                seen.entry(name).or_default().push(shape.extents().to_vec());
            }
        }
        seen.iter().for_each(|(name, shapes)| model.observe(name, shapes, probes.varied));
        Ok(())
    }
}

/// A session of a part of the model, for measurements: it takes any number of rows, and whether rows affect each other is not checked.
///
/// # Errors
/// What the engine says.
pub fn load_part(
    loader: &Loader,
    files: &ModelFiles,
    options: &LoadOptions,
    engine: &'static str,
) -> anyhow::Result<Box<dyn Session>> {
    let unbatched = LoadOptions { max_batch: Some(0), free_batch: false, ..options.clone() };
    let signature = inspect(files, &unbatched)?;
    let known = Some(Known { engine, signature });
    Ok(loader.load(files, &LoadOptions { known, ..unbatched })?)
}
