//! Which batch sizes to measure, on how many cores.

/// Batch sizes that are measured by default, in rows.
const BATCHES: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Numbers of cores that are measured by default, in addition to all cores.
const CORES: [u32; 7] = [1, 2, 3, 4, 6, 8, 12];

/// Numbers of cores, ascending: those asked for, or the usual ones.
///
/// # Errors
/// When more are asked for than there are.
pub fn cores(asked: &[u32], there: u32) -> Result<Vec<u32>, String> {
    if let Some(count) = asked.iter().find(|count| **count > there) {
        return Err(format!("--cores: {count}: expected 1 to {there}, the cores that this process may use"));
    }
    if asked.is_empty() {
        let usual = CORES.into_iter().filter(|count| *count < there);
        return Ok(usual.chain(std::iter::once(there)).collect());
    }
    Ok(ascending(asked))
}

/// Batches of a model, ascending: those asked for, or the usual ones. `max_batch` is 0 for a model without batch
/// dimension: its requests run alone, whatever is asked for.
///
/// # Errors
/// When one is larger than the model takes.
pub fn batches(asked: &[u32], model: &str, max_batch: u32) -> Result<Vec<u32>, String> {
    if max_batch == 0 {
        return Ok(vec![1]);
    }
    if let Some(rows) = asked.iter().find(|rows| **rows > max_batch) {
        return Err(format!(
            "--batches: {rows}: model `{model}` takes at most {max_batch} rows: leave it out, or raise \
             `models.{model}.max_batch`"
        ));
    }
    if asked.is_empty() {
        let mut usual: Vec<u32> = BATCHES.into_iter().filter(|rows| *rows <= max_batch).collect();
        // Nothing is known beyond the largest batch that was measured.
        if usual.len() < BATCHES.len() && !usual.contains(&max_batch) {
            usual.push(max_batch);
        }
        return Ok(usual);
    }
    Ok(ascending(asked))
}

fn ascending(numbers: &[u32]) -> Vec<u32> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_go_up_to_all_that_there_are() {
        assert_eq!(cores(&[], 1), Ok(vec![1]));
        assert_eq!(cores(&[], 2), Ok(vec![1, 2]));
        assert_eq!(cores(&[], 16), Ok(vec![1, 2, 3, 4, 6, 8, 12, 16]));
        assert_eq!(cores(&[4, 1, 4], 4), Ok(vec![1, 4]));
        assert!(cores(&[1, 5], 4).unwrap_err().contains("--cores: 5: expected 1 to 4"));
    }

    #[test]
    fn batches_end_with_what_a_model_takes() {
        assert_eq!(batches(&[], "m", 64), Ok(vec![1, 2, 4, 8, 16, 32]));
        assert_eq!(batches(&[], "m", 32), Ok(vec![1, 2, 4, 8, 16, 32]));
        assert_eq!(batches(&[], "m", 6), Ok(vec![1, 2, 4, 6]));
        assert_eq!(batches(&[], "m", 1), Ok(vec![1]));
        assert_eq!(batches(&[8, 2, 8], "m", 8), Ok(vec![2, 8]));
        assert_eq!(batches(&[8, 2], "m", 0), Ok(vec![1]));
        let said = batches(&[8], "m", 4).unwrap_err();
        assert!(
            said.contains("--batches: 8")
                && said.contains("at most 4")
                && said.contains("models.m.max_batch")
        );
    }
}
