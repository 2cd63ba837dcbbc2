#![allow(
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]
use models::engine::*;
use models::*;
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let path = &a[0];
    let bytes = std::fs::read(path).unwrap();
    let files = ModelFiles::from_bytes(ModelName::new("m").unwrap(), Version(1), Format::Onnx, bytes);
    let env = ort::Environment {
        path: std::env::var_os("PATH"),
        virtual_env: Some("/tmp/py/venv".into()),
        ort_dylib_path: None,
    };
    let loader = Loader::new(ort::discover(None, &env));
    let free = a.iter().any(|x| x == "free");
    let rows: u64 = a.iter().find_map(|x| x.strip_prefix("rows=").map(|v| v.parse().unwrap())).unwrap_or(1);
    let mut outs = vec![];
    for e in ["ort", "tract"] {
        let o = LoadOptions { engine: e.parse().unwrap(), free_batch: free, ..Default::default() };
        let t = Instant::now();
        let mut s = match loader.load(&files, &o) {
            Ok(s) => s,
            Err(x) => {
                println!("  {e}: LOAD FAILED: {x}");
                continue;
            }
        };
        let sig = s.signature().clone();
        println!("  {e}: loaded in {:?} max_batch {}", t.elapsed(), sig.max_batch);
        let inputs = sig
            .inputs
            .iter()
            .map(|i| {
                let given = a.iter().find_map(|x| x.strip_prefix(&format!("{}=", i.name)));
                let (shape, val): (Vec<u64>, Option<i64>) = match given {
                    Some(g) => {
                        let mut p = g.split(':');
                        let s = p
                            .next()
                            .unwrap()
                            .split('x')
                            .filter(|v| !v.is_empty())
                            .map(|v| v.parse().unwrap())
                            .collect();
                        (s, p.next().map(|v| v.parse().unwrap()))
                    }
                    None => (
                        i.dims
                            .iter()
                            .enumerate()
                            .map(|(k, d)| match d {
                                Dim::Fixed(e) => *e,
                                Dim::Free => {
                                    if k == 0 && sig.max_batch > 0 {
                                        rows
                                    } else {
                                        1
                                    }
                                }
                            })
                            .collect(),
                        None,
                    ),
                };
                let n: u64 = shape.iter().product();
                let data: Vec<u8> = match i.datatype {
                    oip::Datatype::Fp32 => {
                        (0..n).flat_map(|k| ((k * 7919 % 1000) as f32 / 1000.0 - 0.5).to_le_bytes()).collect()
                    }
                    oip::Datatype::Int64 => {
                        (0..n).flat_map(|k| val.unwrap_or(1 + (k as i64 % 50)).to_le_bytes()).collect()
                    }
                    oip::Datatype::Int32 => (0..n)
                        .flat_map(|k| val.unwrap_or(k as i64 % 256).to_le_bytes()[..4].to_vec())
                        .collect(),
                    d => panic!("{d}"),
                };
                Some(oip::Tensor {
                    name: i.name.clone(),
                    datatype: i.datatype,
                    shape: oip::Shape::from_extents(&shape),
                    data: data.into(),
                })
            })
            .collect();
        let b = Batch { inputs, rows: rows as u32 };
        match s.run(&b) {
            Ok(o) => {
                let t = Instant::now();
                let n = 20;
                for _ in 0..n {
                    s.run(&b).unwrap();
                }
                println!(
                    "  {e}: {:?} a run; {}",
                    t.elapsed() / n,
                    o.iter()
                        .map(|t| format!("{}{} {}", t.name, t.shape, t.datatype))
                        .collect::<Vec<_>>()
                        .join(" ")
                );
                outs.push(o)
            }
            Err(x) => println!("  {e}: RUN FAILED {x:?}"),
        }
    }
    if let [l, r] = &outs[..] {
        for (l, r) in l.iter().zip(r) {
            assert_eq!(l.shape, r.shape);
            let f = |b: &[u8]| {
                b.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect::<Vec<_>>()
            };
            let (x, y) = (f(&l.data), f(&r.data));
            let m = x.iter().fold(0f32, |a, b| a.max(b.abs()));
            let d = x.iter().zip(&y).fold(0f32, |a, (p, q)| a.max((p - q).abs()));
            println!("  {}: largest {m:e}, max error {d:e}", l.name);
        }
    }
}
