#!/bin/sh
# Delete the backups of more than thirty days ago.
set -e
cd "$(dirname "$0")"
mkdir -p backups
find backups -name '*.tar.gz' -mtime +30 -delete
