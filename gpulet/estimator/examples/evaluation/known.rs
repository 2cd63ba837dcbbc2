//! Known models when one of them, or its family, is left out.

use std::collections::BTreeMap;

use estimator::Estimator;

use super::Failed;
use super::data::Measured;

/// What is left out of the known models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    Model,
    Family,
}

/// The models of a data set, with an estimator for each of them that does not know it.
pub struct LeaveOut<'a> {
    pub all: &'a [Measured],
    left_out: LeftOut,
    /// By model, or by family.
    estimators: BTreeMap<&'a str, Estimator>,
}

impl<'a> LeaveOut<'a> {
    pub fn new(all: &'a [Measured], left_out: LeftOut) -> Result<Self, Failed> {
        let mut models: BTreeMap<&str, &Measured> = BTreeMap::new();
        for model in all {
            models.entry(Self::key(model, left_out)).or_insert(model);
        }
        let (keys, models): (Vec<&str>, Vec<&Measured>) = models.into_iter().unzip();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let estimators = sim::abreast(threads, &models, |model| {
            let known: Vec<_> =
                Self::without(all, model, left_out).into_iter().map(Measured::known).collect();
            Ok(Estimator::new(&known))
        })?;
        Ok(Self { all, left_out, estimators: keys.into_iter().zip(estimators).collect() })
    }

    fn key(model: &'a Measured, left_out: LeftOut) -> &'a str {
        match left_out {
            LeftOut::Model => &model.name,
            LeftOut::Family => model.family,
        }
    }

    fn without(all: &'a [Measured], model: &Measured, left_out: LeftOut) -> Vec<&'a Measured> {
        let is_kept = |other: &&Measured| match left_out {
            LeftOut::Model => other.name != model.name,
            LeftOut::Family => other.family != model.family,
        };
        all.iter().filter(is_kept).collect()
    }

    /// The known models when this one is left out.
    pub fn others(&self, model: &Measured) -> Vec<&'a Measured> {
        Self::without(self.all, model, self.left_out)
    }

    /// What these say.
    pub fn estimator(&self, model: &'a Measured) -> Result<&Estimator, Failed> {
        let found = self.estimators.get(Self::key(model, self.left_out));
        Ok(found.ok_or_else(|| format!("model `{}` is of another data set", model.name))?)
    }
}
