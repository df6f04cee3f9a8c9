/* calls_opener.c - calls_opener NAME: a program linked with a library (opener.c) that opens
 * NAME. */
extern int open_by_name(const char *name);

int main(int argc, char **argv)
{
    return argc == 2 && open_by_name(argv[1]) ? 0 : 1;
}
