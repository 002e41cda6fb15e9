#!/bin/sh
# Archive data/ under the name of the day, which is the same for whoever runs it.
set -e
cd "$(dirname "$0")"
mkdir -p backups
tar -czf "backups/.$DBLOCK_SLOT" data
mv "backups/.$DBLOCK_SLOT" "backups/$DBLOCK_SLOT.tar.gz"
