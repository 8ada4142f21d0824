//! Wrappers for PiBench: a shared library with `create_tree`, which returns an object of a C++ class that
//! inherits from `tree_api`.
//!
//! Its functions are called through the object's virtual table, in the layout of the Itanium C++ ABI, so that nothing
//! needs compiling: two destructors, then the virtual functions in the order of `tree_api.hpp`. The options contain a
//! `std::string` in the layout of libstdc++. Early versions of the header had no `bulk_load`; the size of the table
//! shows the version of a library. An exception that leaves the library ends the process.
//!
//! An 8-byte key is a native number to these wrappers; longer ones are bytes.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use bristlecone::Error;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::scratch::Scratch;

use crate::bench::data::{BenchKey, BenchValue, Shape};
use crate::bench::subject::Subject;

/// `tree_options_t`, with space for the additional fields of some versions.
#[repr(C)]
struct Options {
    key_bytes: usize,
    value_bytes: usize,
    pool_path: CxxString,
    pool_bytes: usize,
    threads: usize,
    more: [usize; 8],
}

/// A `std::string` of libstdc++ with external bytes: `local` would be its capacity.
#[repr(C)]
struct CxxString {
    bytes: *const c_char,
    length: usize,
    capacity: usize,
    local: usize,
}

/// An object of a class that inherits from `tree_api`.
#[repr(C)]
struct Object {
    table: *const *const c_void,
}

/// A shared library, open until it is dropped.
struct Library(NonNull<c_void>);

// SAFETY: a handle of dlopen may be used by any thread.
unsafe impl Send for Library {}
// SAFETY: the same; it is only read.
unsafe impl Sync for Library {}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: dlopen gave the handle, and nothing of the library is used any more.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

fn dl_error() -> String {
    // SAFETY: the string is valid until the next call of the dl functions by this thread.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: dlerror returns a string that ends with 0.
    unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned()
}

impl Library {
    fn open(path: &Path) -> Result<Self, String> {
        let full = path.canonicalize().map_err(|error| error.to_string())?;
        let name = CString::new(full.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the library's constructors run; the user, who named it, is responsible for its soundness.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(dl_error)
    }

    fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// Returns the size of the symbol that contains an address, if the library has this information.
fn bytes_of_symbol(address: *const c_void) -> Option<usize> {
    const RTLD_DL_SYMENT: c_int = 1;
    // SAFETY: zeros are a value of it.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let mut symbol: *mut c_void = std::ptr::null_mut();
    // SAFETY: both places can be written; any address may be asked for.
    let found = unsafe { libc::dladdr1(address, &mut info, &mut symbol, RTLD_DL_SYMENT) };
    if found == 0 || symbol.is_null() || info.dli_saddr.is_null() {
        return None;
    }
    // SAFETY: it was asked for the symbol's entry, and one was found.
    Some(unsafe { (*symbol.cast::<libc::Elf64_Sym>()).st_size } as usize)
}

/// A tree behind a wrapper.
pub struct Wrapper {
    name: String,
    tree: NonNull<Object>,
    /// Index of `find` in the table.
    find: usize,
    key_bytes: usize,
    value_bytes: usize,
    /// Whether keys are native numbers.
    is_number: bool,
    folder: PathBuf,
    /// Open as long as the tree exists.
    _library: Library,
}

// SAFETY: PiBench calls one tree from many threads, so a wrapper must allow it.
unsafe impl Send for Wrapper {}
// SAFETY: the same.
unsafe impl Sync for Wrapper {}

const DELETING_DESTRUCTOR: usize = 1;

type Create = unsafe extern "C" fn(*const Options) -> *mut Object;
type Delete = unsafe extern "C" fn(*mut Object);
type Find = unsafe extern "C" fn(*mut Object, *const u8, usize, *mut u8) -> bool;
type Put = unsafe extern "C" fn(*mut Object, *const u8, usize, *const u8, usize) -> bool;
type Remove = unsafe extern "C" fn(*mut Object, *const u8, usize) -> bool;
type Scan = unsafe extern "C" fn(*mut Object, *const u8, usize, c_int, *mut *const u8) -> c_int;

thread_local! {
    /// Buffer for a found value.
    static FOUND: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Parameters of the tree for a wrapper.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub key: Shape,
    pub value: Shape,
    pub threads: usize,
    pub max_bytes: u64,
}

/// Loads a library and makes it create a tree.
pub fn load(path: &Path, told: Told, scratch: &Scratch) -> Outcome<Wrapper> {
    let refuse = |what: String| Failure::new(Exit::Usage, format!("{}: {what}", path.display()));
    let (Some(key_bytes), Some(value_bytes)) = (told.key.fixed_bytes(), told.value.fixed_bytes()) else {
        return Err(refuse(
            "keys and values of a wrapper have one length each: leave out the range".to_owned(),
        ));
    };
    let library = Library::open(path).map_err(refuse)?;
    let Some(create) = library.symbol(c"create_tree") else {
        return Err(refuse("it has no function create_tree: not a wrapper for PiBench".to_owned()));
    };
    // SAFETY: a function of this name has this type in every wrapper.
    let create = unsafe { std::mem::transmute::<*mut c_void, Create>(create.as_ptr()) };
    let library_name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
    let folder = scratch.path().with_extension(format!("{library_name}.wrapped"));
    std::fs::create_dir(&folder).map_err(|error| Failure::io(folder.display(), &error))?;
    let pool = CString::new(folder.join("pool").as_os_str().as_bytes())
        .map_err(|error| refuse(error.to_string()))?;
    let length = pool.as_bytes().len();
    let options = Options {
        key_bytes,
        value_bytes,
        pool_path: CxxString { bytes: pool.as_ptr(), length, capacity: length, local: 0 },
        pool_bytes: told.max_bytes as usize,
        threads: told.threads,
        more: [0; 8],
    };
    // SAFETY: the options are laid out as the library has them, and live until it returns; it copies what it keeps.
    let tree = NonNull::new(unsafe { create(&options) });
    let Some(tree) = tree else {
        let _ = std::fs::remove_dir_all(&folder);
        return Err(refuse("its create_tree returned nothing".to_owned()));
    };
    // SAFETY: the object begins with a pointer to its table.
    let table = unsafe { tree.as_ref() }.table;
    let find = place_of_find(&library, table);
    let name = path.display().to_string();
    let is_number = told.key == Shape::U64;
    Ok(Wrapper { name, tree, find, key_bytes, value_bytes, is_number, folder, _library: library })
}

/// Returns the index of `find` in a table: behind two destructors, and behind `bulk_load` if present.
fn place_of_find(library: &Library, table: *const *const c_void) -> usize {
    // Two words precede the functions; without bulk_load there are seven functions.
    const WITHOUT_BULK_LOAD: usize = (2 + 7) * size_of::<usize>();
    let base = library.symbol(c"_ZTV8tree_api").map(|symbol| symbol.as_ptr().cast_const());
    let bytes = base.and_then(bytes_of_symbol).or_else(|| bytes_of_symbol(table.cast()));
    if bytes == Some(WITHOUT_BULK_LOAD) { 2 } else { 3 }
}

impl Drop for Wrapper {
    fn drop(&mut self) {
        // SAFETY: the second function of the table deletes the object, which is not used after this.
        unsafe { self.function::<Delete>(DELETING_DESTRUCTOR)(self.tree.as_ptr()) };
        // It may already be removed.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Wrapper {
    /// Returns the function at an index of the table.
    ///
    /// # Safety
    ///
    /// `F` must be its type.
    #[inline]
    unsafe fn function<F: Copy>(&self, at: usize) -> F {
        const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
        // SAFETY: the table has this many functions, and the caller knows the type.
        unsafe { std::mem::transmute_copy(&*self.tree.as_ref().table.add(at)) }
    }

    /// Calls `with` with a key in the wrapper's form.
    #[inline]
    fn key<K: BenchKey, R>(&self, key: K::Ref<'_>, with: impl FnOnce(&[u8]) -> R) -> R {
        if self.is_number { with(&K::id(key).to_ne_bytes()) } else { K::bytes(key, with) }
    }

    fn put<K: BenchKey, V: BenchValue>(&self, at: usize, key: K::Ref<'_>, value: V::Ref<'_>) -> bool {
        self.key::<K, _>(key, |key| {
            V::bytes(value, |value| {
                // SAFETY: `insert` and `update` follow `find` and have this type; both ranges are readable.
                unsafe {
                    self.function::<Put>(self.find + at)(
                        self.tree.as_ptr(),
                        key.as_ptr(),
                        key.len(),
                        value.as_ptr(),
                        value.len(),
                    )
                }
            })
        })
    }
}

const INSERT: usize = 1;
const UPDATE: usize = 2;
const REMOVE: usize = 3;
const SCAN: usize = 4;

impl<K: BenchKey, V: BenchValue> Subject<K, V> for Wrapper {
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        // Retries if another thread removes or inserts the key in between.
        for _ in 0..1000 {
            if self.put::<K, V>(INSERT, key, value) || self.put::<K, V>(UPDATE, key, value) {
                return Ok(());
            }
        }
        Err(Error::io(&*self.name, std::io::Error::other("neither insert nor update takes a key")))
    }

    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        Ok(self.put::<K, V>(INSERT, key, value))
    }

    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        Ok(self.put::<K, V>(UPDATE, key, value))
    }

    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error> {
        FOUND.with_borrow_mut(|value| {
            // A value that the wrapper does not write stays empty.
            value.clear();
            value.resize(self.value_bytes, 0);
            let found = self.key::<K, _>(key, |key| {
                // SAFETY: `find` has this type; the key is readable, and a value has space.
                unsafe {
                    self.function::<Find>(self.find)(
                        self.tree.as_ptr(),
                        key.as_ptr(),
                        key.len(),
                        value.as_mut_ptr(),
                    )
                }
            });
            Ok(found.then(|| V::from_bytes(value)).flatten().map(look))
        })
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.key::<K, _>(key, |key| {
            // SAFETY: `remove` has this type, and the key is readable.
            unsafe {
                self.function::<Remove>(self.find + REMOVE)(self.tree.as_ptr(), key.as_ptr(), key.len())
            }
        }))
    }

    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        mut each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error> {
        let mut entries: *const u8 = std::ptr::null();
        let seen = self.key::<K, _>(from, |key| {
            // SAFETY: `scan` has this type; the key is readable, and `entries` can be written.
            unsafe {
                self.function::<Scan>(self.find + SCAN)(
                    self.tree.as_ptr(),
                    key.as_ptr(),
                    key.len(),
                    length as c_int,
                    &mut entries,
                )
            }
        });
        let seen = usize::try_from(seen).unwrap_or(0);
        if entries.is_null() || seen > length {
            return Ok(seen);
        }
        // SAFETY: a wrapper leaves `seen` entries there, one after the other, until its thread scans again.
        let entries =
            unsafe { std::slice::from_raw_parts(entries, seen * (self.key_bytes + self.value_bytes)) };
        for entry in entries.chunks_exact(self.key_bytes + self.value_bytes) {
            let (key, value) = entry.split_at(self.key_bytes);
            let mut number = [0; 8];
            if self.is_number {
                number.copy_from_slice(key);
                // In the order of key bytes used here.
                number.reverse();
            }
            let swapped = cfg!(target_endian = "little") && self.is_number;
            if let (Some(key), Some(value)) =
                (K::from_bytes(if swapped { &number } else { key }), V::from_bytes(value))
            {
                each(key, value);
            }
        }
        Ok(seen)
    }
}
