//! Votes of pipelines: whose outputs vote, and the measured weights of their votes.

use models::{ContentHash, Ensemble};
use router_core::millionths;
use router_core::voting::Voter;

use super::quality::{ClassAccuracy, Quality};

/// What a version whose steps vote knows of the models that vote.
pub struct ServedVote {
    /// They are at least two.
    pub voters: Vec<ServedVoter>,
}

/// A model that votes.
pub struct ServedVoter {
    /// Place of its step in the ensemble.
    pub step: usize,
    /// The tensor of the ensemble with its votes.
    pub tensor: String,
    /// Hash of the files whose quality was measured.
    pub hash: ContentHash,
    /// Weights of its votes.
    pub voter: Voter,
}

impl ServedVote {
    /// The vote of an ensemble; `None` if it has none. `models`: name, files and largest batch of the model of each step.
    ///
    /// # Errors
    /// A model takes no batches, or its quality was not measured on labels, or of other files.
    pub(super) fn of(
        ensemble: &Ensemble,
        models: &[(&str, ContentHash, u32)],
        stored: impl Fn(&str) -> Result<Option<Quality>, String>,
    ) -> Result<Option<Self>, String> {
        if ensemble.vote.is_empty() {
            return Ok(None);
        }
        let served = |tensor: &String| {
            let is_writer = |step: &models::EnsembleStep| step.outputs.values().any(|own| own == tensor);
            let step = ensemble.steps.iter().position(is_writer);
            let found = step.and_then(|step| Some((step, *models.get(step)?)));
            let (step, (name, hash, max_batch)) =
                found.ok_or_else(|| format!("`{tensor}`: expected the output of a stage"))?;
            if max_batch == 0 {
                return Err(format!(
                    "`{name}` takes no batches: expected a model whose outputs have a row each"
                ));
            }
            let voter = voter((name, hash), stored(name)?)?;
            Ok(ServedVoter { step, tensor: tensor.clone(), hash, voter })
        };
        let voters = ensemble.vote.iter().map(served).collect::<Result<Vec<_>, String>>()?;
        Ok(Some(Self { voters }))
    }
}

/// The weights of the votes of a model with these files, by its stored quality.
///
/// # Errors
/// It was not measured on labels, or of other files.
pub fn voter(model: (&str, ContentHash), stored: Option<Quality>) -> Result<Voter, String> {
    let quality = Quality::of_files(model, stored)?;
    if quality.classes.is_empty() {
        let remedy = "measure it with `tessera variants measure --labelled`";
        return Err(format!("the quality of `{}` was measured without classes: {remedy}", model.0));
    }
    let class = |(class, one): (&i64, &ClassAccuracy)| {
        (*class, millionths(one.right as f64 / one.rows.max(1) as f64))
    };
    Ok(Voter { quality: millionths(quality.value), classes: quality.classes.iter().map(class).collect() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use models::EnsembleStep;

    use super::*;

    fn ensemble() -> Ensemble {
        let step = |name: &str| EnsembleStep {
            name: name.to_owned(),
            model: name.to_owned(),
            version: None,
            inputs: BTreeMap::from([("x".to_owned(), "x".to_owned())]),
            outputs: BTreeMap::from([("y".to_owned(), format!("{name}.y"))]),
            answer_if: None,
            fan_out: 1.0,
        };
        Ensemble {
            inputs: Vec::new(),
            outputs: Vec::new(),
            sources: BTreeMap::new(),
            max_batch: 0,
            free_rows: true,
            steps: vec![step("s"), step("m"), step("l")],
            vote: vec!["l.y".to_owned(), "s.y".to_owned()],
        }
    }

    fn measured(hash: ContentHash) -> Quality {
        let classes = BTreeMap::from([(3, ClassAccuracy { right: 1, rows: 3 })]);
        Quality { value: 0.5, rows: 3, digest: hash.to_string(), classes, ..Quality::default() }
    }

    #[test]
    fn weights_are_measured_accuracies() {
        let hash = ContentHash::of(b"model");
        let models = ["s", "m", "l"].map(|name| (name, hash, 8));
        let vote = ServedVote::of(&ensemble(), &models, |_| Ok(Some(measured(hash)))).unwrap().unwrap();
        let voters: Vec<(usize, &str)> =
            vote.voters.iter().map(|one| (one.step, one.tensor.as_str())).collect();
        assert_eq!(voters, [(2, "l.y"), (0, "s.y")]);
        let voter = &vote.voters[0].voter;
        assert_eq!((voter.weight(3), voter.weight(4)), (333_333, 500_000));
        let without = Ensemble { vote: Vec::new(), ..ensemble() };
        assert!(ServedVote::of(&without, &models, |_| Ok(None)).unwrap().is_none());
    }

    #[test]
    fn models_that_cannot_vote_are_named() {
        let hash = ContentHash::of(b"model");
        let other = measured(ContentHash::of(b"other"));
        let old = Quality { classes: BTreeMap::new(), ..measured(hash) };
        for (max_batch, stored, said) in [
            (8, None, "the quality of `l` was not measured: measure it with `tessera variants measure`"),
            (8, Some(other), "the quality of `l` was measured of other files than those that are served"),
            (8, Some(old), "the quality of `l` was measured without classes: measure it with"),
            (0, Some(measured(hash)), "`l` takes no batches: expected a model whose outputs have a row each"),
        ] {
            let models = ["s", "m", "l"].map(|name| (name, hash, max_batch));
            let error = ServedVote::of(&ensemble(), &models, |_| Ok(stored.clone())).err().unwrap();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
