//! Creating pools.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::file_lock::lock;
use super::layout::CHUNK_BYTES_LEAST;
use super::new_file::NewFile;
use super::open::{Found, detect, expect_possible};
use super::superblock::Contents;
use super::{Access, CHUNK_BYTES, CreateOptions, Geometry, Glance, Nameless, PoolFile, TREES_MAX, backing};
use crate::segment::new_number;
use crate::{At, Domain, Error, Medium, Region, Result, failpoint};

/// A pool whose file has no name yet. If dropped, it is deleted.
#[derive(Debug)]
pub struct Unnamed<'p, M> {
    pool: Arc<PoolFile<M>>,
    name: NewFile<'p>,
}

impl<M: Medium> Unnamed<'_, M> {
    /// Returns the pool.
    pub fn pool(&self) -> &Arc<PoolFile<M>> {
        &self.pool
    }

    /// Writes the pool back to its medium and then names its file, durably.
    ///
    /// # Errors
    ///
    /// [`Exists`](Error::Exists) if a file has the name now, and errors of the system. The pool is then deleted.
    pub fn publish(self) -> Result<()> {
        self.pool.region.sync()?;
        self.pool.region.as_file().map_or(Ok(()), |file| self.name.publish(file))
    }

    /// Writes the pool back to its medium and then gives its file the name of another one, durably. After an error, or a
    /// crash, the name is that of one of both files.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn replace(self) -> Result<()> {
        self.pool.region.sync()?;
        self.pool.region.as_file().map_or(Ok(()), |file| self.name.replace(file))
    }
}

impl CreateOptions {
    /// Returns the sizes of the pool.
    fn geometry(&self) -> Result<Geometry> {
        let chunk_bytes = self.chunk_bytes.unwrap_or(CHUNK_BYTES);
        if !chunk_bytes.is_power_of_two() || !(CHUNK_BYTES_LEAST..=CHUNK_BYTES).contains(&chunk_bytes) {
            let what =
                format!("chunks of {chunk_bytes} bytes: powers of two from 4 KiB to 2 MiB are possible");
            return Err(Error::invalid(what));
        }
        let chunks_max = self.max_bytes.div_ceil(chunk_bytes);
        let geometry = Geometry { chunk_bytes, chunks_max, trees_max: TREES_MAX };
        if !geometry.is_valid() || geometry.max_bytes() > 1 << 48 {
            let what = format!("a pool of {} bytes: 1 byte to 256 TiB are possible", self.max_bytes);
            return Err(Error::invalid(what));
        }
        Ok(geometry)
    }
}

impl<M: Medium> PoolFile<M> {
    /// Creates a pool in a new file that only its owner may read and write. `make_medium` gets
    /// the domain in force.
    ///
    /// # Errors
    ///
    /// [`Exists`](Error::Exists), [`NotFound`](Error::NotFound), [`Invalid`](Error::Invalid),
    /// [`MediumFull`](Error::MediumFull), and errors of the system. No file is left behind.
    pub fn create<'p>(
        at: impl Into<At<'p>>,
        options: &CreateOptions,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let unnamed = Self::create_unnamed(at, options, make_medium)?;
        let pool = Arc::clone(unnamed.pool());
        // It is locked and complete: an opener finds it in use, or not at all.
        unnamed.publish()?;
        Ok(pool)
    }

    /// Creates a pool in a new file without a name, until [`Unnamed::publish`] names it. Otherwise it is deleted.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_unnamed<'p>(
        at: impl Into<At<'p>>,
        options: &CreateOptions,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Unnamed<'p, M>> {
        let chosen = |detected| options.domain.unwrap_or(detected);
        Self::create_without_name(at.into(), options, chosen, make_medium)
    }

    /// Does the same for a caller that can create a journal. Without a domain in `options`, an ordinary file gets the
    /// domain [`Journal`](Domain::Journal). The journal must exist before the pool is named.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_with_journal<'p>(
        at: impl Into<At<'p>>,
        options: &CreateOptions,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Unnamed<'p, M>> {
        let chosen = |detected| match (options.domain, detected) {
            (None, Domain::Msync) => Domain::Journal,
            (asked, _) => asked.unwrap_or(detected),
        };
        Self::create_without_name(at.into(), options, chosen, make_medium)
    }

    fn create_without_name<'p>(
        at: At<'p>,
        options: &CreateOptions,
        chosen: impl FnOnce(Domain) -> Domain,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Unnamed<'p, M>> {
        let geometry = options.geometry()?;
        let (file, name) = NewFile::make(at.path)?;
        let pool =
            Self::create_on((file, 0), at, Some(at.path), geometry, new_identity(), chosen, make_medium)?;
        Ok(Unnamed { pool, name })
    }

    /// Creates an empty pool of the identity and sizes of another one, which takes its place once it
    /// [has its contents](Unnamed::replace).
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_again<'p>(
        at: impl Into<At<'p>>,
        of: &Glance,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Unnamed<'p, M>> {
        let at = at.into();
        let (file, name) = NewFile::make_again(at.path)?;
        let as_before = |_| of.domain;
        let pool =
            Self::create_on((file, 0), at, Some(at.path), of.geometry, of.uuid, as_before, make_medium)?;
        Ok(Unnamed { pool, name })
    }

    /// Creates a pool in a file in memory without a name, which is freed when the pool is closed or the process ends.
    /// `handled` is the one of [`At`].
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid), [`MediumFull`](Error::MediumFull), and errors of the system.
    pub fn create_temporary(
        handled: bool,
        options: &CreateOptions,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let geometry = options.geometry()?;
        let made = failpoint::check("memfd_create")
            .and_then(|()| rustix::fs::memfd_create("bristlecone", rustix::fs::MemfdFlags::CLOEXEC));
        let file = File::from(made.map_err(|error| Error::io("creating a file in memory", error))?);
        let path = Path::new("a temporary pool");
        let at = if handled { At::from(path) } else { At::unhandled(path) };
        let chosen = |detected| options.domain.unwrap_or(detected);
        Self::create_on((file, 0), at, None, geometry, new_identity(), chosen, make_medium)
    }

    /// Creates a pool in a file that was passed as a descriptor, and holds [no pool](Nameless::is_blank). The file keeps
    /// its length if it has one. A kill before this returns leaves a file without a pool, or with an empty one. `handled`
    /// is the one of [`At`].
    ///
    /// # Errors
    ///
    /// [`Exists`](Error::Exists) if there is a pool, or anything else; [`Invalid`](Error::Invalid) if the file may not
    /// grow to the maximum; otherwise as [`create`](Self::create). Except after the first two, the file holds no pool.
    pub fn create_nameless(
        nameless: &Nameless,
        handled: bool,
        options: &CreateOptions,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        lock(&nameless.file, Access::Write)?;
        if !nameless.is_blank()? {
            return Err(Error::Exists { path: nameless.label.clone() });
        }
        let (geometry, len) = (options.geometry()?, nameless.len()?);
        if nameless.is_fixed && len < geometry.max_bytes() {
            let (label, needed) = (nameless.label.display(), geometry.max_bytes());
            let what =
                format!("{label} has {len} bytes, and may not grow: this maximum needs {needed} bytes");
            return Err(Error::invalid(what));
        }
        nameless.clear()?;
        let at = At { path: &nameless.label, handled };
        let file = nameless.file.try_clone().map_err(|error| Error::at_path(at.path, error))?;
        let chosen = |detected| options.domain.unwrap_or(detected);
        let file = (file, len.min(geometry.max_bytes()));
        let pool =
            Self::create_on(file, at, nameless.named(), geometry, new_identity(), chosen, make_medium)?;
        if len > 0 {
            pool.recover_chunks()?;
        }
        Ok(pool)
    }

    fn create_on(
        (file, len): (File, u64),
        at: At<'_>,
        path: Option<&Path>,
        geometry: Geometry,
        uuid: u128,
        chosen: impl FnOnce(Domain) -> Domain,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        lock(&file, Access::Write)?;
        let max_bytes = geometry.max_bytes();
        let region = Region::file(file, at, len, max_bytes..=max_bytes)?;
        region.grow(geometry.header_bytes())?;
        backing::back_header(&region, &geometry)?;
        let detected = detect(&region);
        let domain = chosen(detected);
        expect_possible(&region, domain)?;
        Ok(Self::format(region, geometry, make_medium(domain), (domain, detected), path, uuid))
    }

    /// Creates a pool in anonymous memory, for tests and simulators.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the region is too small.
    pub fn create_in(region: Region, geometry: Geometry, domain: Domain, medium: M) -> Result<Arc<Self>> {
        if !geometry.is_valid() || geometry.max_bytes() > region.reserved() {
            return Err(Error::invalid("the region is too small for this geometry"));
        }
        region.grow(geometry.header_bytes())?;
        // A fixed identity, so that simulations repeat exactly.
        Ok(Self::format(region, geometry, medium, (domain, domain), None, 0))
    }

    fn format(
        region: Region,
        geometry: Geometry,
        medium: M,
        (domain, detected): (Domain, Domain),
        path: Option<&Path>,
        uuid: u128,
    ) -> Arc<Self> {
        let mut contents = Contents {
            uuid: [uuid as u64, (uuid >> 64) as u64],
            geometry,
            sequence: 0,
            domain,
            clean: false,
            // Simulations repeat exactly: a pool in memory has no segment.
            seal: region.as_file().and_then(|_| new_number()).unwrap_or(0),
            intent: false,
            commits: false,
            pages: false,
        };
        contents.write(&region, &medium);
        contents.sequence = 1;
        contents.write(&region, &medium);
        Self::assemble(
            region,
            medium,
            Found { contents, was_clean: true, seal: 0, damage: None },
            detected,
            path,
            Access::Write,
        )
    }
}

/// Returns a random identity. Without entropy it is zero, on which nothing depends but that journals differ.
fn new_identity() -> u128 {
    let mut uuid = [0; 16];
    let _ = rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty());
    u128::from_le_bytes(uuid)
}
