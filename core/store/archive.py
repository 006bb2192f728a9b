"""A session as one file to send or to keep: a ZIP that holds its folder, to be unpacked among the other sessions."""

import shutil
import zipfile
from pathlib import Path

from core.store import files
from core.store.errors import StorageError, translated
from core.store.session import DATABASE, Session


def export_session(folder: Path, target: Path) -> Path:
    """Write the session in ``folder``, which may be in use, to ``target``, complete or not at all. Returns the file.

    A ``target`` that is a folder gets a file named after the session. Damaged checkpoints are left out. Raises
    StoreError, also where there is a file already.
    """
    file = target / f"{folder.name}.zip" if target.is_dir() else target
    building = files.temporary_beside(file)
    packed = building.with_name(f"{building.name}.zip")
    with translated(file):
        if file.exists():
            raise StorageError(f"{file} is there already; name another file")
        try:
            building.mkdir()
            with Session.open(folder, read_only=True) as session:
                session.copy_to(building)
            # Weights are random to a packer: it would take longer and save little.
            with zipfile.ZipFile(packed, "w") as archive:
                archive.write(building / DATABASE, f"{folder.name}/{DATABASE}", zipfile.ZIP_DEFLATED)
                for each in sorted((building / "checkpoints").glob("*/*.safetensors")):
                    archive.write(each, f"{folder.name}/checkpoints/{each.parent.name}/{each.name}")
            files.sync_file(packed)
            packed.rename(file)
            files.sync_folder(file.parent)
        finally:
            shutil.rmtree(building, ignore_errors=True)
            packed.unlink(missing_ok=True)
    return file
