//! `report.html`: a self-contained page.

mod axis;
mod page;
mod plot;

use std::path::{Path, PathBuf};

use bristlecone_cli::failure::{Failure, Outcome};

use super::figure::Figure;
use super::papers::Paper;
use super::results::Measurement;

const FILE: &str = "report.html";

/// Fails if the page cannot be written, before anything is measured.
pub fn check_writable(folder: &Path) -> Outcome {
    let path = folder.join(FILE);
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    opened.map(drop).map_err(|error| Failure::io(path.display(), &error))
}

/// Writes the page, and returns its path.
pub fn write(folder: &Path, papers: &[(&Paper, Vec<Figure>)], all: &[Measurement]) -> Outcome<PathBuf> {
    let path = folder.join(FILE);
    let new = folder.join("report.html.new");
    let mut all = all.to_vec();
    for (paper, figures) in papers {
        all.iter_mut().for_each(|result| result.refresh(paper.name, figures));
    }
    std::fs::write(&new, page::page(papers, &all)).map_err(|error| Failure::io(new.display(), &error))?;
    std::fs::rename(&new, &path).map_err(|error| Failure::io(path.display(), &error))?;
    Ok(path)
}
