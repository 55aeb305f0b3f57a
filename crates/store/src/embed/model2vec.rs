//! A static model from a directory in model2vec's form: `model.safetensors` with a tensor `embeddings`, and
//! `tokenizer.json` with a WordPiece vocabulary.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use anyhow::{Context, bail, ensure};
use helve_contract::{Error, Result, async_trait};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{Embedder, SUM_WEIGHT, WordPiece, normalize};

/// The largest model file that is read.
const MAX_MODEL_BYTES: u64 = 1 << 30;
/// The largest description of tensors, and the largest tokenizer.
const MAX_HEADER_BYTES: u64 = 64 << 20;

/// A static model from a directory.
pub struct Model2Vec {
    id: String,
    tokenizer: WordPiece,
    dims: usize,
    /// Row after row.
    rows: Vec<f32>,
}

impl Model2Vec {
    /// Reads the model in a directory.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let load = || -> anyhow::Result<Self> {
            let model = read_bounded(&folder.join("model.safetensors"), MAX_MODEL_BYTES)?;
            let tokenizer = read_bounded(&folder.join("tokenizer.json"), MAX_HEADER_BYTES)?;
            Self::parse(&model, &tokenizer)
        };
        load().map_err(|error| Error::failed(format!("the embedding model in {}: {error:#}", folder.display())))
    }

    /// Reads a model from the bytes of its two files.
    pub fn parse(model: &[u8], tokenizer: &[u8]) -> anyhow::Result<Self> {
        let tensor = Tensor::find(model, "embeddings")?;
        let vocabulary = vocabulary(tokenizer)?;
        let count = tensor.shape[0];
        ensure!(vocabulary.values().all(|id| (*id as usize) < count), "the tokenizer has tokens without a vector");
        let hash = Sha256::new().chain_update(model).chain_update(tokenizer).finalize();
        let id = u64::from_be_bytes(std::array::from_fn(|at| hash[at]));
        Ok(Self {
            id: format!("model2vec-{id:016x}"),
            tokenizer: WordPiece::new(vocabulary.iter().map(|(token, id)| (token.as_str(), *id))),
            dims: tensor.shape[1],
            rows: tensor.to_f32()?,
        })
    }
}

#[async_trait]
impl Embedder for Model2Vec {
    fn id(&self) -> &str {
        &self.id
    }

    fn dims(&self) -> usize {
        self.dims
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let vector = |text: &&str| {
            let mut sum = vec![0.0; self.dims];
            for token in self.tokenizer.tokens(text) {
                let row = self.rows.chunks_exact(self.dims).nth(token as usize).unwrap_or_default();
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            normalize(&mut sum);
            sum
        };
        Ok(texts.iter().map(vector).collect())
    }

    fn sentence_weight(&self) -> f32 {
        SUM_WEIGHT
    }
}

fn read_bounded(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(name)?;
    file.take(most + 1).read_to_end(&mut bytes).with_context(name)?;
    ensure!(bytes.len() as u64 <= most, "{} is larger than {most} bytes", name());
    Ok(bytes)
}

/// What a safetensors file says of one tensor, and its bytes.
struct Tensor<'a> {
    half: bool,
    shape: [usize; 2],
    bytes: &'a [u8],
}

#[derive(Deserialize)]
struct TensorHeader {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl<'a> Tensor<'a> {
    /// A file begins with the length of a JSON object that says where each tensor lies after it.
    fn find(file: &'a [u8], name: &str) -> anyhow::Result<Self> {
        let (length, rest) = file.split_first_chunk::<8>().context("the file ends before it begins")?;
        let length = usize::try_from(u64::from_le_bytes(*length))?;
        ensure!(length <= MAX_HEADER_BYTES as usize && length <= rest.len(), "the description is longer than the file");
        let (described, data) = rest.split_at(length);
        let mut described: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(described).context("the description is not JSON")?;
        let it = described.remove(name).with_context(|| format!("there is no tensor `{name}`"))?;
        let it: TensorHeader = serde_json::from_value(it)?;
        let size = match it.dtype.as_str() {
            "F32" => 4,
            "F16" => 2,
            other => bail!("`{name}` is {other}; F32 and F16 are known"),
        };
        let [rows, dims] = it.shape[..] else { bail!("`{name}` is not a table") };
        ensure!((1..=4096).contains(&dims) && (1..=4 << 20).contains(&rows), "a table of {rows} × {dims} is not known");
        let bytes = data.get(it.data_offsets[0]..it.data_offsets[1]).context("the tensor lies outside the file")?;
        ensure!(bytes.len() == rows * dims * size, "`{name}` has {} bytes for {rows} × {dims}", bytes.len());
        Ok(Self { half: size == 2, shape: [rows, dims], bytes })
    }

    fn to_f32(&self) -> anyhow::Result<Vec<f32>> {
        let numbers: Vec<f32> = if self.half {
            self.bytes.chunks_exact(2).map(|it| f16_to_f32(u16::from_le_bytes([it[0], it[1]]))).collect()
        } else {
            self.bytes.chunks_exact(4).map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]])).collect()
        };
        ensure!(numbers.iter().all(|x| x.is_finite()), "the table has numbers that are none");
        Ok(numbers)
    }
}

/// A number of sixteen bits.
fn f16_to_f32(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f32.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

fn vocabulary(tokenizer: &[u8]) -> anyhow::Result<BTreeMap<String, u32>> {
    #[derive(Deserialize)]
    struct Tokenizer {
        model: TokenizerModel,
    }
    #[derive(Deserialize)]
    struct TokenizerModel {
        #[serde(rename = "type")]
        kind: Option<String>,
        vocab: serde_json::Value,
    }
    let Tokenizer { model } = serde_json::from_slice(tokenizer).context("tokenizer.json")?;
    ensure!(model.kind.as_deref() == Some("WordPiece"), "the tokenizer is not a WordPiece");
    Ok(serde_json::from_value(model.vocab)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENIZER: &str =
        r###"{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "sun": 1, "##s": 2, "moon": 3}}}"###;

    fn file(dtype: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
        let described = format!(
            r#"{{"embeddings": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [0, {}]}}}}"#,
            bytes.len()
        );
        [&(described.len() as u64).to_le_bytes(), described.as_bytes(), bytes].concat()
    }

    fn table() -> Vec<u8> {
        [0.0_f32, 0.0, 3.0, 0.0, 0.0, 4.0, 1.0, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[tokio::test]
    async fn sums_the_rows_of_the_tokens() {
        let model = Model2Vec::parse(&file("F32", "[4, 2]", &table()), TOKENIZER.as_bytes()).unwrap();
        assert_eq!((model.dims(), model.embed(&["Suns", "?"]).await.unwrap()), (2, vec![vec![0.6, 0.8], vec![0.0; 2]]));
    }

    #[tokio::test]
    async fn reads_numbers_of_sixteen_bits() {
        let bytes: Vec<u8> = [0_u16, 0, 0x4200, 0, 0, 0xc400, 0, 0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let model = Model2Vec::parse(&file("F16", "[4, 2]", &bytes), TOKENIZER.as_bytes()).unwrap();
        assert_eq!(model.embed(&["suns"]).await.unwrap(), [[0.6, -0.8]]);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let refused = |model: &[u8], tokenizer: &str| match Model2Vec::parse(model, tokenizer.as_bytes()) {
            Ok(_) => "read".to_owned(),
            Err(error) => error.to_string(),
        };
        let good = file("F32", "[4, 2]", &table());
        assert_eq!(refused(&good[..4], TOKENIZER), "the file ends before it begins");
        assert_eq!(refused(&good[..good.len() - 1], TOKENIZER), "the tensor lies outside the file");
        assert_eq!(refused(&[0xff; 16], TOKENIZER), "the description is longer than the file");
        assert_eq!(refused(&file("F32", "[4, 3]", &table()), TOKENIZER), "`embeddings` has 32 bytes for 4 × 3");
        assert_eq!(refused(&file("I8", "[4, 2]", &table()), TOKENIZER), "`embeddings` is I8; F32 and F16 are known");
        assert_eq!(refused(&good, r#"{"model": {"type": "BPE", "vocab": {}}}"#), "the tokenizer is not a WordPiece");
        let unknown = r#"{"model": {"type": "WordPiece", "vocab": {"sun": 9}}}"#;
        assert_eq!(refused(&good, unknown), "the tokenizer has tokens without a vector");
    }
}
