"""The figures of Ren, Ltaief, Abdulah and Keyes (2024), measured on this machine."""
