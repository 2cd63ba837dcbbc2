//! Votes of pipelines: the classes that stages gave to each row, as one answer.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use models::{ContentHash, VOTE_CLASS, VOTE_SHARE};
use node::catalog::ServedVote;
use node::reason::{Reason, Refusal};
use oip::{Datatype, Shape, Tensor};
use router_core::voting;

/// Whether the models that vote have the files whose quality was measured. `held`: name and files of the model of each step.
pub(super) fn check<'a>(
    vote: &ServedVote,
    pipeline: &str,
    held: impl Fn(usize) -> Option<(&'a str, ContentHash)>,
) -> Result<(), Refusal> {
    let changed = vote.voters.iter().find_map(|one| held(one.step).filter(|(_, hash)| *hash != one.hash));
    let Some((name, _)) = changed else { return Ok(()) };
    let message = format!(
        "pipeline `{pipeline}`: the quality of `{name}` was measured of other files than those that are served: measure it with \
         `tessera variants measure`, and unload and load the pipeline"
    );
    Err(Refusal::new(Reason::ModelNotReady, message))
}

/// The tensors of the vote: the class of each row, and its share of the weight.
pub(super) fn decide(vote: &ServedVote, tensors: &BTreeMap<String, Tensor>) -> Result<[Tensor; 2], Refusal> {
    let failed = |problem: String| Refusal::new(Reason::EngineFailed, format!("vote: {problem}"));
    let mut votes = Vec::with_capacity(vote.voters.len());
    let mut rows = None;
    for one in &vote.voters {
        let missing = || failed(format!("`{}`: the stage did not write it", one.tensor));
        let given = tensors.get(&one.tensor).ok_or_else(missing)?;
        let own = given.shape.extents().first().copied().unwrap_or(1);
        let expected = *rows.get_or_insert(own);
        if own != expected {
            return Err(failed(format!(
                "`{}` has {own} rows: expected {expected}, as the first one",
                one.tensor
            )));
        }
        let count = usize::try_from(own).unwrap_or(usize::MAX);
        votes.push((&one.voter, models::classes(given, count).map_err(failed)?));
    }
    let rows = rows.unwrap_or(0);
    let (mut classes, mut shares) = (BytesMut::new(), BytesMut::new());
    for row in 0..usize::try_from(rows).unwrap_or(usize::MAX) {
        let of_row = votes.iter().filter_map(|(voter, classes)| Some((*voter, *classes.get(row)?)));
        let decision =
            voting::decide(of_row).ok_or_else(|| failed("expected votes for each row".to_owned()))?;
        classes.extend_from_slice(&decision.class.to_le_bytes());
        shares.extend_from_slice(&decision.share().to_le_bytes());
    }
    let tensor = |name: &str, datatype, data: Bytes| Tensor {
        name: name.to_owned(),
        datatype,
        shape: Shape::from_extents(&[rows]),
        data,
    };
    Ok([
        tensor(VOTE_CLASS, Datatype::Int64, classes.freeze()),
        tensor(VOTE_SHARE, Datatype::Fp32, shares.freeze()),
    ])
}

#[cfg(test)]
mod tests {
    use node::catalog::ServedVoter;
    use router_core::voting::Voter;

    use super::*;

    fn vote() -> ServedVote {
        let voters = [("s", 0.6), ("m", 0.6), ("l", 0.9)].into_iter().enumerate();
        let voter = |(step, (name, quality)): (usize, (&str, f64))| ServedVoter {
            step,
            tensor: format!("{name}.y"),
            hash: ContentHash::of(name.as_bytes()),
            voter: Voter { quality: router_core::millionths(quality), classes: BTreeMap::new() },
        };
        ServedVote { voters: voters.map(voter).collect() }
    }

    fn tensors(rows: [&[u8]; 3]) -> BTreeMap<String, Tensor> {
        let tensor = |(name, row): (&str, &[u8])| {
            let name = format!("{name}.y");
            let shape = Shape::from_extents(&[row.len() as u64, 1]);
            (
                name.clone(),
                Tensor { name, datatype: Datatype::Uint8, shape, data: Bytes::copy_from_slice(row) },
            )
        };
        ["s", "m", "l"].into_iter().zip(rows).map(tensor).collect()
    }

    #[test]
    fn each_row_gets_the_class_with_the_largest_weight() {
        let [class, share] = decide(&vote(), &tensors([&[1, 4, 0], &[1, 5, 0], &[2, 6, 0]])).unwrap();
        let classes: Vec<i64> =
            class.data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        let shares: Vec<f32> =
            share.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!(classes, [1, 6, 0]);
        assert_eq!(shares, [1.2 / 2.1, 0.9 / 2.1, 1.0].map(|share: f64| share as f32));
        assert_eq!((class.shape.extents(), share.shape.extents()), (&[3][..], &[3][..]));
        let [class, _] = decide(&vote(), &tensors([&[], &[], &[]])).unwrap();
        assert_eq!((class.shape.extents(), class.data.len()), (&[0][..], 0));
    }

    #[test]
    fn what_cannot_be_decided_is_named() {
        let error = decide(&vote(), &tensors([&[1], &[1, 2], &[1]])).unwrap_err();
        assert_eq!(error.message, "vote: `m.y` has 2 rows: expected 1, as the first one");
        let mut missing = tensors([&[1], &[1], &[1]]);
        missing.remove("l.y");
        let error = decide(&vote(), &missing).unwrap_err();
        assert_eq!(error.message, "vote: `l.y`: the stage did not write it");
        let held = |changed: bool| {
            move |step: usize| {
                let names = ["s", "m", "l"];
                let name = *names.get(step)?;
                let files = if changed && name == "m" { "new" } else { name };
                Some((name, ContentHash::of(files.as_bytes())))
            }
        };
        assert!(check(&vote(), "p", held(false)).is_ok());
        let error = check(&vote(), "p", held(true)).unwrap_err();
        assert!(
            error.message.starts_with("pipeline `p`: the quality of `m` was measured of other files"),
            "{error}"
        );
    }
}
