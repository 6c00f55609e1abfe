"""What `axiom sim` shows: tables, the report, the section of a document, progress."""
