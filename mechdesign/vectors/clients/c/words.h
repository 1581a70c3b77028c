/* Eight bytes of a cryptographic generator (getrandom, /dev/urandom), never used twice. */
typedef struct { unsigned char bytes[8]; } name_word;
typedef name_word (*name_source)(void *state);
