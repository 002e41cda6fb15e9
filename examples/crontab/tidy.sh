#!/bin/sh
# Delete the backups of more than thirty days ago.
cd "$(dirname "$0")/backups" && find . -name '*.tar.gz' -mtime +30 -delete
